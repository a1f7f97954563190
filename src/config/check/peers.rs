//! Checks of `[[engine]]`, `[[listen]]` and `[[route]]`.
//!
//! Purpose: names are unique, references resolve, passwords come from exactly one place. Called by
//! `check`. An engine that is wrong in some way still counts as declared, so that one mistake does
//! not show as a second one wherever the engine is named.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use super::super::checked::{
    Admin, Engine, EngineHost, EngineTls, Listen, ListenCertificate, ListenTls, Protocol, Route,
};
use super::super::defaults;
use super::super::raw::{RawEngine, RawListen, RawRoute, Text};
use super::super::url::{self, ENGINE_TLS, EngineUrl};
use super::{Origin, Reader, shown};
use crate::base::ids::{EngineName, Namespace};
use crate::base::secret::Secret;

/// An engine that was declared, whether or not it is right.
pub(super) struct Declared {
    pub(super) name: EngineName,
    pub(super) protocol: Option<Protocol>,
    /// Present when nothing was wrong with it.
    pub(super) engine: Option<Engine>,
}

/// Whether an engine is declared to be at this address, as far as its spelling tells.
fn is_at(declared: &Declared, host: &EngineHost) -> bool {
    declared.engine.as_ref().is_some_and(|engine| match (&engine.host, host) {
        (EngineHost::Tcp { host: a, port: p }, EngineHost::Tcp { host: b, port: q }) => {
            a.eq_ignore_ascii_case(b) && p == q
        }
        (EngineHost::Unix { .. }, EngineHost::Unix { .. }) => engine.host == *host,
        (EngineHost::Tcp { .. }, EngineHost::Unix { .. })
        | (EngineHost::Unix { .. }, EngineHost::Tcp { .. }) => false,
    })
}

/// What to say of a listener whose protocol none of these engines speaks.
fn speaks_otherwise(protocol: Protocol, engines: &[Declared]) -> String {
    let told: Vec<String> = engines
        .iter()
        .filter_map(|one| Some(format!("{} speaks {}", one.name, one.protocol?.as_str())))
        .collect();
    format!(
        "expected an engine that speaks {}, and {}; one of the two has the wrong scheme",
        protocol.as_str(),
        told.join(", ")
    )
}

impl Reader<'_> {
    pub(super) fn engines(&mut self, raw: &[Spanned<RawEngine>]) -> Vec<Declared> {
        let mut engines: Vec<Declared> = Vec::new();
        for written in raw {
            let (table, span) = (written.get_ref(), written.span());
            let url = self.engine_url(table, &span);
            let protocol = url.as_ref().map(|url| url.protocol);
            let Some(name) = self.engine_name(table, protocol, &span) else { continue };
            if engines.iter().any(|declared| declared.name == name) {
                let message = format!("expected a name of its own; \"{name}\" is used twice");
                let place = table.name.as_ref().map_or(span, Spanned::span);
                self.problem(Some(place), "engine.name", message);
                continue;
            }
            let place = table.url.as_ref().map_or(span, Spanned::span);
            if let Some(url) = &url
                && let Some(same) = engines.iter().find(|declared| is_at(declared, &url.host))
            {
                // A fence over one name would not hold for sessions under the other.
                let message = format!("expected a server of its own; \"{}\" has it", same.name);
                self.problem(Some(place), "engine.url", message);
            }
            let engine = self.engine(table, &name, url);
            engines.push(Declared { name, protocol, engine });
        }
        if raw.is_empty() {
            let message = "expected at least one [[engine]] with a name and a url \
                           (--engine on the command line)";
            self.problem(None, "engine", message);
        }
        engines
    }

    fn engine_url(&mut self, table: &RawEngine, span: &Range<usize>) -> Option<EngineUrl> {
        let Some(value) = &table.url else {
            let message = "expected a url, such as postgres://user@host:5432/postgres";
            self.problem(Some(span.clone()), "engine.url", message);
            return None;
        };
        self.parsed("engine.url", value.span(), url::engine(value.get_ref()))
    }

    fn engine_name(
        &mut self,
        table: &RawEngine,
        protocol: Option<Protocol>,
        span: &Range<usize>,
    ) -> Option<EngineName> {
        match (&table.name, protocol) {
            (Some(name), _) => {
                self.parsed("engine.name", name.span(), EngineName::new(name.get_ref()))
            }
            (None, Some(protocol)) => EngineName::new(protocol.as_str()).ok(),
            (None, None) => {
                let message = "expected a name, used in namespaces as name/database";
                self.problem(Some(span.clone()), "engine.name", message);
                None
            }
        }
    }

    fn engine(
        &mut self,
        table: &RawEngine,
        name: &EngineName,
        url: Option<EngineUrl>,
    ) -> Option<Engine> {
        let before = self.problems.len();
        let bounds = &defaults::CONNECT_TIMEOUT_MS;
        let key = "engine.connect_timeout_ms";
        let timeout = self.number(key, &table.connect_timeout_ms, bounds, bounds.default);
        let url = url?;
        let (tls, ca_file) = self.engine_tls(table, &url);
        let password = self.password(table, url.password);
        let database = url.database.unwrap_or_else(|| match url.protocol {
            Protocol::Postgres => defaults::POSTGRES_DATABASE.to_owned(),
            Protocol::Mysql => String::new(),
        });
        let engine = Engine {
            name: name.clone(),
            protocol: url.protocol,
            host: url.host,
            user: url.user,
            password,
            database,
            tls,
            ca_file,
            connect_timeout: Duration::from_millis(timeout),
        };
        (self.problems.len() == before).then_some(engine)
    }

    fn engine_tls(&mut self, table: &RawEngine, url: &EngineUrl) -> (EngineTls, Option<PathBuf>) {
        let unix = matches!(url.host, EngineHost::Unix { .. });
        let default = if unix { EngineTls::Disable } else { EngineTls::Prefer };
        let place = table.tls.as_ref().or(table.url.as_ref()).map(Spanned::span);
        let mut tls = self.choice("engine.tls", &table.tls, ENGINE_TLS, url.tls.unwrap_or(default));
        if table.tls.is_some() && url.tls.is_some_and(|in_url| in_url != tls) {
            let message = "expected the same level here and as sslmode in the url; remove one";
            self.problem(place.clone(), "engine.tls", message);
        }
        match tls {
            EngineTls::Disable => {}
            EngineTls::Prefer if unix => tls = EngineTls::Disable,
            EngineTls::Require | EngineTls::VerifyCa | EngineTls::VerifyFull if unix => {
                let message = "expected \"disable\": TLS is not used over a unix socket";
                self.problem(place.clone(), "engine.tls", message);
            }
            EngineTls::Prefer
            | EngineTls::Require
            | EngineTls::VerifyCa
            | EngineTls::VerifyFull => {}
        }
        let ca_place = table.ca_file.as_ref().map(Spanned::span).or_else(|| place.clone());
        let from_url = url
            .ca_file
            .as_ref()
            .zip(table.url.as_ref())
            .map(|(path, value)| Spanned::new(value.span(), path.display().to_string()));
        let written = table.ca_file.clone().or(from_url);
        let ca_file = self.readable("engine.ca_file", &written);
        match tls {
            EngineTls::VerifyCa if written.is_none() => {
                let message = "expected a ca_file beside tls = \"verify-ca\"";
                self.problem(place, "engine.tls", message);
            }
            EngineTls::Disable | EngineTls::Prefer | EngineTls::Require if ca_file.is_some() => {
                let message = "a ca_file is checked only with tls = \"verify-ca\" or \
                               \"verify-full\"; raise tls, or remove it";
                self.problem(ca_place, "engine.ca_file", message);
            }
            EngineTls::Disable
            | EngineTls::Prefer
            | EngineTls::Require
            | EngineTls::VerifyCa
            | EngineTls::VerifyFull => {}
        }
        (tls, ca_file)
    }

    /// The password from the one place that names it.
    fn password(&mut self, table: &RawEngine, in_url: Option<Secret>) -> Option<Secret> {
        let sources =
            [in_url.is_some(), table.password_file.is_some(), table.password_env.is_some()];
        let places = [&table.password_file, &table.password_env, &table.url];
        let place = places.into_iter().flatten().map(Spanned::span).next();
        if sources.iter().filter(|given| **given).count() > 1 {
            let message = "expected the password in one place only: the url, password_file or \
                           password_env";
            self.problem(place, "engine.password_file", message);
            return None;
        }
        if let Some(file) = &table.password_file {
            return self.password_from_file(file);
        }
        if let Some(name) = &table.password_env {
            let value = self.around.variable(name.get_ref());
            if value.is_none() {
                let message = "expected the name of an environment variable that is set";
                self.problem(place, "engine.password_env", message);
            }
            return value.map(Secret::new);
        }
        in_url
    }

    fn password_from_file(&mut self, file: &Spanned<String>) -> Option<Secret> {
        let key = "engine.password_file";
        let path = PathBuf::from(file.get_ref());
        let bytes = self.content(key, file, &path)?;
        self.note_readable(key, &path);
        let text = String::from_utf8(bytes).ok();
        // One line, with or without its end: editors add one, passwords don't hold one.
        let line = text.as_deref().map(|text| text.trim_end_matches(['\r', '\n']));
        match line {
            Some(line) if !line.is_empty() && !line.contains(['\n', '\0']) => {
                Some(Secret::new(line.to_owned()))
            }
            Some(_) | None => {
                let message = "expected a file of one line in UTF-8, the password";
                self.problem(Some(file.span()), key, message);
                None
            }
        }
    }

    pub(super) fn listens(
        &mut self,
        raw: &[Spanned<RawListen>],
        engines: &[Declared],
        admin: &Admin,
    ) -> Vec<Listen> {
        let mut listens: Vec<Listen> = Vec::new();
        let mut taken = vec![admin.http.clone()];
        taken.extend(admin.consoles().into_iter().map(|(_, _, address)| address.clone()));
        for written in raw {
            let Some(listen) = self.listen(written, engines) else { continue };
            if taken.contains(&listen.address) {
                let message =
                    format!("expected an address of its own; {} is taken", listen.address);
                let place = written.get_ref().address.as_ref().map(Spanned::span);
                self.problem(place, "listen.address", message);
            }
            taken.push(listen.address.clone());
            listens.push(listen);
        }
        if raw.is_empty() {
            let message = "expected at least one [[listen]] with a protocol and an address \
                           (--listen on the command line)";
            self.problem(None, "listen", message);
        }
        listens
    }

    fn listen(&mut self, written: &Spanned<RawListen>, engines: &[Declared]) -> Option<Listen> {
        let (table, span) = (written.get_ref(), written.span());
        let protocol = self.listen_protocol(table, &span);
        if let Some(auth) = &table.auth {
            match auth.get_ref().as_str() {
                "passthrough" => {}
                "scram" | "password" => {
                    let what = "logging in on the clients' behalf; use auth = \"passthrough\"";
                    self.not_yet(auth.span(), "listen.auth", what);
                }
                other => {
                    let message = format!("expected \"passthrough\", got {}", shown(other));
                    self.problem(Some(auth.span()), "listen.auth", message);
                }
            }
        }
        if let Some(flag) = table.proxy_protocol.as_ref().filter(|flag| *flag.get_ref()) {
            let what = "the PROXY protocol of load balancers; use proxy_protocol = false";
            self.not_yet(flag.span(), "listen.proxy_protocol", what);
        }
        let auto_prepare = self.auto_prepare(table, protocol);
        let address = match &table.address {
            Some(value) => {
                let read = url::listen_address(value.get_ref());
                self.parsed("listen.address", value.span(), read)
            }
            None => {
                let message = "expected an address, such as \"0.0.0.0:6432\" or \"unix:/path\"";
                self.problem(Some(span.clone()), "listen.address", message);
                None
            }
        };
        let (tls, certificate) = self.listen_tls(table);
        let default_engine = self.default_engine(table, protocol?, engines, &span);
        let default_engine = default_engine?;
        let (protocol, address) = (protocol?, address?);
        Some(Listen { protocol, address, default_engine, tls, certificate, auto_prepare })
    }

    /// MySQL's protocol has no statement without a name.
    fn auto_prepare(&mut self, table: &RawListen, protocol: Option<Protocol>) -> bool {
        let Some(flag) = table.auto_prepare.as_ref().filter(|flag| *flag.get_ref()) else {
            return false;
        };
        if protocol == Some(Protocol::Mysql) {
            let message = "expected false, or protocol = \"postgres\": only PostgreSQL's protocol \
                           has statements without a name";
            self.problem(Some(flag.span()), "listen.auto_prepare", message);
        }
        true
    }

    fn listen_protocol(&mut self, table: &RawListen, span: &Range<usize>) -> Option<Protocol> {
        let Some(value) = &table.protocol else {
            let message = "expected protocol = \"postgres\" or \"mysql\"";
            self.problem(Some(span.clone()), "listen.protocol", message);
            return None;
        };
        match value.get_ref().as_str() {
            "postgres" | "postgresql" => Some(Protocol::Postgres),
            "mysql" | "mariadb" => Some(Protocol::Mysql),
            other => {
                let message = format!("expected \"postgres\" or \"mysql\", got {}", shown(other));
                self.problem(Some(value.span()), "listen.protocol", message);
                None
            }
        }
    }

    fn default_engine(
        &mut self,
        table: &RawListen,
        protocol: Protocol,
        engines: &[Declared],
        span: &Range<usize>,
    ) -> Option<EngineName> {
        let key = "listen.default_engine";
        let speaks = |declared: &&Declared| {
            declared.protocol.is_none_or(|engine_protocol| engine_protocol == protocol)
        };
        let Some(value) = &table.default_engine else {
            let mut speaking = engines.iter().filter(speaks).map(|declared| &declared.name);
            let first = speaking.next().cloned();
            if let (Some(first), Some(other)) = (&first, speaking.next()) {
                let address = table.address.as_ref().map_or("", |address| address.get_ref());
                self.notes.push(match self.origin {
                    Origin::File(_) => format!(
                        "listen.default_engine: the listener at {address} names none, and {first} \
                         and {other} both speak its protocol: databases without a route go to \
                         {first}, the first; say default_engine = \"{first}\" if that is meant"
                    ),
                    // There is no option for it: their order is what says it.
                    Origin::Flags => format!(
                        "--engine: {first} and {other} both speak the protocol of the listener at \
                         {address}: databases go to {first}, which was given first, and are \
                         reached at {other} as {other}/database; put the other one first if that \
                         is meant"
                    ),
                });
            }
            // Without any engine there is a problem already.
            if first.is_none() && !engines.is_empty() {
                let message = speaks_otherwise(protocol, engines);
                self.problem(Some(span.clone()), key, message);
            }
            return first;
        };
        let declared = self.declared(key, value, engines)?;
        if !speaks(&declared) {
            let message = speaks_otherwise(protocol, std::slice::from_ref(declared));
            self.problem(Some(value.span()), key, message);
        }
        Some(declared.name.clone())
    }

    fn declared<'e>(
        &mut self,
        key: &str,
        value: &Spanned<String>,
        engines: &'e [Declared],
    ) -> Option<&'e Declared> {
        let found = engines.iter().find(|declared| declared.name.as_str() == value.get_ref());
        if found.is_none() {
            let message =
                format!("expected the name of an [[engine]], got {}", shown(value.get_ref()));
            self.problem(Some(value.span()), key, message);
        }
        found
    }

    fn listen_tls(&mut self, table: &RawListen) -> (ListenTls, Option<ListenCertificate>) {
        let some = |text: &Text| text.clone().filter(|value| !value.get_ref().is_empty());
        let (cert, key) = (some(&table.cert_file), some(&table.key_file));
        let options = [
            ("disable", ListenTls::Disable),
            ("allow", ListenTls::Allow),
            ("require", ListenTls::Require),
        ];
        let default = if cert.is_some() { ListenTls::Allow } else { ListenTls::Disable };
        let tls = self.choice("listen.tls", &table.tls, &options, default);
        let cert_file = self.readable("listen.cert_file", &cert);
        let key_file = self.readable("listen.key_file", &key);
        let client_ca_file = self.readable("listen.client_ca_file", &table.client_ca_file);
        let ca = some(&table.client_ca_file);
        match tls {
            ListenTls::Disable => {
                let useless = [("listen.cert_file", &cert), ("listen.key_file", &key)];
                let useless = useless.into_iter().chain([("listen.client_ca_file", &ca)]);
                for (name, value) in useless {
                    if let Some(value) = value {
                        let message = "has no effect while TLS is off; set tls = \"allow\" or \
                                       \"require\" with cert_file and key_file, or remove it";
                        self.problem(Some(value.span()), name, message);
                    }
                }
                (tls, None)
            }
            ListenTls::Allow | ListenTls::Require => {
                if cert.is_none() || key.is_none() {
                    let place = table.tls.as_ref().or(cert.as_ref()).map(Spanned::span);
                    let message = "expected cert_file and key_file beside it";
                    self.problem(place, "listen.tls", message);
                }
                if let (ListenTls::Allow, Some(ca)) = (tls, &ca) {
                    let message = "client certificates are demanded only with tls = \"require\"; \
                                   a client without TLS would pass";
                    self.problem(Some(ca.span()), "listen.client_ca_file", message);
                }
                let certificate = cert_file.zip(key_file).map(|(cert_file, key_file)| {
                    ListenCertificate { cert_file, key_file, client_ca_file }
                });
                (tls, certificate)
            }
        }
    }

    pub(super) fn routes(&mut self, raw: &[Spanned<RawRoute>], engines: &[Declared]) -> Vec<Route> {
        let mut routes: Vec<Route> = Vec::new();
        for written in raw {
            let Some(route) = self.route(written, engines) else { continue };
            if routes.iter().any(|known| known.name == route.name) {
                let message =
                    format!("expected a name of its own; {} is used twice", shown(&route.name));
                let place = written.get_ref().name.as_ref().map(Spanned::span);
                self.problem(place, "route.name", message);
            }
            routes.push(route);
        }
        routes
    }

    fn route(&mut self, written: &Spanned<RawRoute>, engines: &[Declared]) -> Option<Route> {
        let (table, span) = (written.get_ref(), written.span());
        let Some(name) = &table.name else {
            let message = "expected a name, what clients put in their connection string";
            self.problem(Some(span), "route.name", message);
            return None;
        };
        let text = name.get_ref();
        if text.is_empty() || text.len() > 63 || text.contains('\0') {
            self.problem(Some(name.span()), "route.name", "expected 1 to 63 bytes without NUL");
            return None;
        }
        let reaches = |declared: &&Declared| {
            text.split_once('/').is_some_and(|(engine, _)| engine == declared.name.as_str())
        };
        if engines.iter().find(reaches).is_some() {
            let message = "expected another name: engine/database reaches that namespace itself";
            self.problem(Some(name.span()), "route.name", message);
        }
        let Some(engine) = &table.engine else {
            let message = "expected the name of an [[engine]]";
            self.problem(Some(span), "route.engine", message);
            return None;
        };
        let declared = self.declared("route.engine", engine, engines)?;
        let database = table.database.as_ref().unwrap_or(name);
        let namespace = Namespace::new(declared.name.clone(), database.get_ref());
        let namespace = self.parsed("route.database", database.span(), namespace)?;
        Some(Route { name: text.clone(), namespace })
    }
}
