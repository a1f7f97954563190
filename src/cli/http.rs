//! A small HTTP client for the admin surface: one connection per request, JSON both ways.
//!
//! Purpose: tells apart what matters to whoever sent a command: nothing was sent, the answer was
//! lost, or there is an answer. Everything is bounded: connecting, waiting, the size of an answer.
//! Called by `ctl`. It follows no redirects, keeps nothing open and speaks no TLS in this version.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::admin::http::ADOPTION_KEY_HEADER;
use crate::base::secret::Secret;
use crate::telemetry::spawn::spawn_named;

/// Bound on connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    /// The address can't be used.
    #[error("admin address: {0}")]
    BadAddress(&'static str),
    /// No connection; nothing was sent.
    #[error("{address} could not be reached: {reason}")]
    Unreachable { address: String, reason: String },
    /// The request may have been read; its answer did not arrive.
    #[error("the answer of {address} was lost: {reason}")]
    Lost { address: String, reason: String },
    /// Something answered that is not the admin surface.
    #[error("{address} answered with HTTP {status} and not in JSON: is this the admin address?")]
    NotJson { address: String, status: u16 },
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// Where the admin surface is, and the key to it.
#[derive(Debug)]
pub(super) struct Client {
    address: String,
    prefix: String,
    key: Secret,
    /// The second key, sent where there is one.
    adoption_key: Option<Secret>,
}

impl Client {
    /// Reads `http://host:port[/prefix]`.
    pub(super) fn new(url: &str, key: Secret) -> Result<Self, HttpError> {
        let shape =
            HttpError::BadAddress("expected http://host:port, such as http://127.0.0.1:6480");
        if url.starts_with("https://") {
            return Err(HttpError::BadAddress(
                "https is not available yet in this version; use http:// on the proxy's host or \
                 through a tunnel",
            ));
        }
        let Some(rest) = url.strip_prefix("http://") else { return Err(shape) };
        let (address, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if address.is_empty() || address.contains(['@', '?', '#']) || !printable(rest) {
            return Err(shape);
        }
        // Behind the last colon comes the port, unless that colon is part of an IPv6 address.
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let address = if has_port { address.to_owned() } else { format!("{address}:80") };
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { address, prefix, key, adoption_key: None })
    }

    /// The same client, which shows the second key as well.
    #[must_use]
    pub(super) fn with_adoption_key(self, key: Secret) -> Self {
        Self { adoption_key: Some(key), ..self }
    }

    /// Asks. `limit` bounds the whole of it, connecting apart.
    pub(super) async fn get(&self, path: &str, limit: Duration) -> Result<Answer, HttpError> {
        self.send(Method::GET, path, Bytes::new(), limit).await
    }

    /// Commands.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Answer, HttpError> {
        self.send(Method::POST, path, Bytes::from(body.to_string()), limit).await
    }

    fn unreachable(&self, reason: impl ToString) -> HttpError {
        HttpError::Unreachable { address: self.address.clone(), reason: reason.to_string() }
    }

    fn lost(&self, reason: impl ToString) -> HttpError {
        HttpError::Lost { address: self.address.clone(), reason: reason.to_string() }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, HttpError> {
        let unusable = "the key or the address has characters that HTTP can't carry";
        let mut request = Request::builder();
        if let Some(key) = &self.adoption_key {
            request = request.header(ADOPTION_KEY_HEADER, key.expose());
        }
        request
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(HOST, &self.address)
            .header(AUTHORIZATION, format!("Bearer {}", self.key.expose()))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|_| HttpError::BadAddress(unusable))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Answer, HttpError> {
        let request = self.request(method, path, body)?;
        let connect = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.address));
        let stream = connect.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(|error| self.unreachable(error))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| self.unreachable(error))?;
        let driver = spawn_named("ctl-http", connection);
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|e| self.lost(e))?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
            let bytes = body.collect().await.map_err(|error| self.lost(error))?.to_bytes();
            match serde_json::from_slice(&bytes) {
                Ok(body) => Ok(Answer { status, body }),
                // A refusal by status alone says enough: no key, no such route.
                Err(_) if (400..500).contains(&status) => Ok(Answer { status, body: Value::Null }),
                Err(_) => Err(HttpError::NotJson { address: self.address.clone(), status }),
            }
        };
        let late = || self.lost(format!("none within {} s", limit.as_secs()));
        let answer = tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| Err(late()));
        driver.abort();
        answer
    }
}

/// A name as one path segment.
pub(super) fn segment(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |url: &str| {
            Client::new(url, Secret::new("k".into())).map(|c| (c.address, c.prefix)).ok()
        };
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(read("http://127.0.0.1:6480"), pair("127.0.0.1:6480", ""));
        assert_eq!(read("http://h/"), pair("h:80", ""));
        assert_eq!(read("http://[::1]/fw/"), pair("[::1]:80", "/fw"));
        assert_eq!(read("http://[::1]:5"), pair("[::1]:5", ""));
        for bad in ["127.0.0.1:6480", "https://h", "http://", "http://u:p@h", "http://h h"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_become_segments() {
        assert_eq!(segment("app-1_x.y"), "app-1_x.y");
        assert_eq!(segment("a/b é"), "a%2Fb%20%C3%A9");
    }
}
