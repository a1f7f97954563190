//! Reading engine, store and listener addresses.
//!
//! Purpose: `postgres://user:password@host:port/database` and its relatives, by hand: small, and
//! sure not to repeat a password in an error. Every message is a fixed sentence without any part of
//! the text that was read. Called by `check`. It connects to nothing and resolves no names.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use super::checked::{EngineHost, EngineTls, ListenAddress, Protocol};
use crate::base::secret::Secret;

/// An engine URL taken apart. What the URL leaves open is `None`.
#[derive(Debug)]
pub(super) struct EngineUrl {
    pub(super) protocol: Protocol,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) host: EngineHost,
    pub(super) database: Option<String>,
    pub(super) tls: Option<EngineTls>,
    pub(super) ca_file: Option<PathBuf>,
}

/// Names of the TLS levels toward an engine, as written in files and URLs.
pub(super) const ENGINE_TLS: &[(&str, EngineTls)] = &[
    ("disable", EngineTls::Disable),
    ("prefer", EngineTls::Prefer),
    ("require", EngineTls::Require),
    ("verify-ca", EngineTls::VerifyCa),
    ("verify-full", EngineTls::VerifyFull),
];

const SHAPE: &str = "expected postgres://user:password@host:port/database (or mysql://…)";
const ENCODING: &str = "a '%' must be followed by two hexadecimal digits, and the result must be \
                        UTF-8; write '%' itself as %25";

fn decode(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                return Err(ENCODING);
            };
            // Two hexadecimal digits fit a byte.
            bytes.push(u8::try_from(high * 16 + low).map_err(|_| ENCODING)?);
        } else {
            bytes.push(byte);
        }
    }
    if bytes.contains(&0) {
        return Err("a NUL byte can't be part of it");
    }
    String::from_utf8(bytes).map_err(|_| ENCODING)
}

fn port(text: &str) -> Result<u16, &'static str> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse::<u16>().ok() } else { None };
    number.filter(|port| *port != 0).ok_or("the port must be a number from 1 to 65535")
}

/// Splits `host:port`, `[v6]:port`, `host`; the host may be empty.
fn host_port(text: &str) -> Result<(String, Option<u16>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("an IPv6 address ends with ']'")?;
        host.parse::<Ipv6Addr>().map_err(|_| "not an IPv6 address between '[' and ']'")?;
        let port = match after.strip_prefix(':') {
            Some(text) => Some(port(text)?),
            None if after.is_empty() => None,
            None => return Err("after ']' only :port may follow"),
        };
        return Ok((host.to_owned(), port));
    }
    if text.contains(',') {
        return Err("one host only; give each server its own [[engine]]");
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Err("write an IPv6 address as [address]:port"),
        Some((host, text)) => Ok((decode(host)?, Some(port(text)?))),
        None => Ok((decode(text)?, None)),
    }
}

/// What may follow the `?`.
#[derive(Default)]
struct Parameters {
    host: Option<String>,
    port: Option<u16>,
    tls: Option<EngineTls>,
    ca_file: Option<PathBuf>,
}

fn parameters(query: &str) -> Result<Parameters, &'static str> {
    let mut found = Parameters::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value)?;
        match name {
            "host" => found.host = Some(value),
            "port" => found.port = Some(port(&value)?),
            "sslmode" | "ssl-mode" => {
                let known = ENGINE_TLS.iter().find(|(name, _)| *name == value);
                let known = known.map(|(_, tls)| *tls);
                found.tls =
                    Some(known.ok_or(
                        "sslmode must be disable, prefer, require, verify-ca or verify-full",
                    )?);
            }
            "sslrootcert" => found.ca_file = Some(PathBuf::from(value)),
            _ => {
                return Err("a parameter after '?' is unknown; expected host, port, sslmode or \
                            sslrootcert (a '?' inside a password is written %3F)");
            }
        }
    }
    Ok(found)
}

fn engine_host(protocol: Protocol, host: String, port: Option<u16>) -> EngineHost {
    let port = port.unwrap_or(protocol.default_port());
    if host.starts_with('/') {
        return EngineHost::Unix { path: PathBuf::from(host), port };
    }
    let host = if host.is_empty() { "localhost".to_owned() } else { host };
    EngineHost::Tcp { host, port }
}

/// Takes an engine URL apart.
pub(super) fn engine(url: &str) -> Result<EngineUrl, &'static str> {
    let (scheme, rest) = url.split_once("://").ok_or(SHAPE)?;
    let protocol = match scheme {
        "postgres" | "postgresql" => Protocol::Postgres,
        "mysql" | "mariadb" => Protocol::Mysql,
        _ => return Err(SHAPE),
    };
    if rest.contains('#') {
        return Err("a '#' is written %23");
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') && !authority.contains('@') {
        return Err("a '/' inside a user name or password is written %2F");
    }
    let (login, address) = authority
        .rsplit_once('@')
        .ok_or("a user name is missing: expected postgres://user@host:port/database")?;
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (decode(user)?, Some(decode(password)?)),
        None => (decode(login)?, None),
    };
    if user.is_empty() {
        return Err("a user name is missing: expected postgres://user@host:port/database");
    }
    let given = parameters(query)?;
    let (host, port) = host_port(address)?;
    let host = given.host.unwrap_or(host);
    let database = Some(decode(path)?).filter(|name| !name.is_empty());
    if database.as_ref().is_some_and(|name| name.len() > 63) {
        return Err("the database name is longer than 63 bytes");
    }
    Ok(EngineUrl {
        protocol,
        user,
        password: password.filter(|text| !text.is_empty()).map(Secret::new),
        host: engine_host(protocol, host, given.port.or(port)),
        database,
        tls: given.tls,
        ca_file: given.ca_file,
    })
}

/// Reads `host:port` or `unix:/path`.
pub(super) fn listen_address(text: &str) -> Result<ListenAddress, &'static str> {
    if let Some(path) = text.strip_prefix("unix:") {
        if !path.starts_with('/') || path.len() > 107 {
            return Err("expected unix: and an absolute path of at most 107 bytes");
        }
        return Ok(ListenAddress::Unix(PathBuf::from(path)));
    }
    match host_port(text) {
        Ok((host, Some(port))) if !host.is_empty() => Ok(ListenAddress::Tcp { host, port }),
        Ok(_) => Err("expected host:port, such as 127.0.0.1:6432, or unix:/path"),
        Err(why) => Err(why),
    }
}

/// Reads `postgres://host:port` as given to `--listen`.
pub(super) fn listen_flag(text: &str) -> Result<(String, String), &'static str> {
    let shape = "expected postgres://host:port, such as postgres://127.0.0.1:6432";
    let (scheme, rest) = text.split_once("://").ok_or(shape)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['@', '?']) || rest.contains('/') {
        return Err(shape);
    }
    Ok((scheme.to_owned(), rest.to_owned()))
}

/// What a store URL names.
pub(super) enum StoreUrl {
    /// A file of the embedded store.
    Sqlite(PathBuf),
    /// A server; recognised, not available yet.
    Server,
}

/// Reads `sqlite:///absolute/path` or `sqlite:relative/path`, or recognises a server's URL.
pub(super) fn store(text: &str) -> Result<StoreUrl, &'static str> {
    let shape = "expected sqlite:///absolute/path/fence.db";
    let (scheme, rest) = text.split_once(':').ok_or(shape)?;
    match scheme {
        "postgres" | "postgresql" | "mysql" | "mariadb" => Ok(StoreUrl::Server),
        "sqlite" => {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if path.is_empty() || path.contains('?') || path.ends_with('/') {
                return Err(shape);
            }
            Ok(StoreUrl::Sqlite(PathBuf::from(decode(path)?)))
        }
        _ => Err(shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_found() {
        let url = engine("postgres://fw%40x:p%3Aw%2F@10.0.0.5:5433/ap%20p?sslmode=require");
        let url = url.unwrap();
        assert_eq!(url.user, "fw@x");
        assert_eq!(url.password.as_ref().unwrap().expose(), "p:w/");
        assert_eq!(url.host, EngineHost::Tcp { host: "10.0.0.5".into(), port: 5433 });
        assert_eq!(url.database.as_deref(), Some("ap p"));
        assert_eq!(url.tls, Some(EngineTls::Require));
        assert!(!format!("{url:?}").contains("p:w"), "{url:?}");
    }

    #[test]
    fn defaults_and_sockets() {
        let url = engine("postgresql://fw@localhost").unwrap();
        assert_eq!(url.host, EngineHost::Tcp { host: "localhost".into(), port: 5432 });
        assert!(url.password.is_none() && url.database.is_none());
        let socket = EngineHost::Unix { path: "/run/pg".into(), port: 5433 };
        for text in
            ["postgres://fw@%2Frun%2Fpg:5433/app", "postgres://fw@/app?host=/run/pg&port=5433"]
        {
            let url = engine(text).unwrap();
            assert_eq!((url.host, url.database.as_deref()), (socket.clone(), Some("app")));
        }
        let six = engine("mysql://fw@[::1]/").unwrap();
        assert_eq!(six.host, EngineHost::Tcp { host: "::1".into(), port: 3306 });
    }

    #[test]
    fn bad_urls_say_why_and_never_repeat_the_password() {
        for (url, why) in [
            ("10.0.0.5:5432", "expected postgres://"),
            ("oracle://u:sesame@h/", "expected postgres://"),
            ("postgres://h/db", "user name is missing"),
            ("postgres://:sesame@h/db", "user name is missing"),
            ("postgres://u:sesame@h:0/db", "1 to 65535"),
            ("postgres://u:sesame@h:+5/db", "1 to 65535"),
            ("postgres://u:ses%zzame@h/db", "hexadecimal"),
            ("postgres://u:ses%ffame@h/db", "UTF-8"),
            ("postgres://u:ses%00ame@h/db", "NUL"),
            ("postgres://u:ses/ame@h/db", "%2F"),
            ("postgres://u:ses?ame@h/db", "user name is missing"),
            ("postgres://u@h/db?sesame=1", "%3F"),
            ("postgres://u:ses#ame@h/db", "%23"),
            ("postgres://u:sesame@a,b/db", "one host only"),
            ("postgres://u:sesame@::1/db", "[address]:port"),
            ("postgres://u:sesame@[zz]/db", "IPv6"),
            ("postgres://u:sesame@h/db?sslmode=on", "sslmode must be"),
        ] {
            let error = engine(url).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("ses"), "{url}: {error}");
        }
    }

    #[test]
    fn listen_and_store_addresses() {
        let tcp = ListenAddress::Tcp { host: "0.0.0.0".into(), port: 6432 };
        assert_eq!(listen_address("0.0.0.0:6432"), Ok(tcp));
        assert_eq!(listen_address("unix:/run/x"), Ok(ListenAddress::Unix("/run/x".into())));
        for bad in ["6432", ":6432", "host", "unix:x", "host:99999", ""] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
        let (scheme, address) = listen_flag("postgres://127.0.0.1:6432").unwrap();
        assert_eq!((scheme.as_str(), address.as_str()), ("postgres", "127.0.0.1:6432"));
        assert!(listen_flag("127.0.0.1:6432").is_err());
        let path = |text| match store(text) {
            Ok(StoreUrl::Sqlite(path)) => Some(path),
            Ok(StoreUrl::Server) | Err(_) => None,
        };
        assert_eq!(path("sqlite:///var/f.db"), Some("/var/f.db".into()));
        assert_eq!(path("sqlite:f.db"), Some("f.db".into()));
        assert!(matches!(store("postgres://u@h/d"), Ok(StoreUrl::Server)));
        assert!(store("sqlite://").is_err() && store("f.db").is_err());
    }
}
