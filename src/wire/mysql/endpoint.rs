//! Connecting a session to its engine.
//!
//! Purpose: W25 (engine side) and W26: TCP or Unix socket, the engine's greeting, TLS as the
//! engine's settings say, and one sentence with the engine's name when it doesn't work. Called by
//! `session.rs`.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

use crate::base::ids::EngineName;
use crate::tls::{ClientConnector, ClientTls, Stream, TlsError, TlsMode};
use crate::wire::mysql::capabilities as bits;
use crate::wire::mysql::frame;
use crate::wire::mysql::startup::{self, Greeting, Login};
use crate::wire::shared::address::{Address, Unreachable};
use crate::wire::shared::patience::{TooLate, within};

/// One engine as sessions see it.
#[derive(Debug)]
pub struct Endpoint {
    name: EngineName,
    address: Address,
    mode: TlsMode,
    connector: Option<ClientConnector>,
    connect_timeout: Duration,
}

/// How an engine greets.
#[derive(Debug)]
pub(crate) enum Greeted {
    /// As it should.
    Welcome(Stream, Box<Greeting>),
    /// With an error: too many connections, a blocked host. The packet's payload.
    Refused(Vec<u8>),
}

impl Endpoint {
    /// Reads the CA file, if there is one.
    ///
    /// # Errors
    /// [`TlsError`] from the settings.
    pub fn new(
        name: EngineName,
        address: Address,
        tls: &ClientTls,
        connect_timeout: Duration,
    ) -> Result<Self, TlsError> {
        let connector = tls.nameless_connector()?;
        Ok(Self { name, address, mode: tls.mode, connector, connect_timeout })
    }

    /// The engine's name.
    #[must_use]
    pub const fn name(&self) -> &EngineName {
        &self.name
    }

    fn unreachable(&self, reason: impl ToString) -> Unreachable {
        Unreachable::new(&self.name, &self.address, reason)
    }

    /// Opens a connection and reads the greeting; still in plaintext.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn connect(&self) -> Result<Greeted, Unreachable> {
        self.in_time(self.open()).await
    }

    /// The same within the time that connecting may take.
    ///
    /// # Cancel safety
    /// As the work itself.
    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Unreachable>>,
    ) -> Result<T, Unreachable> {
        match within(self.connect_timeout, work).await {
            Ok(result) => result,
            Err(TooLate) => {
                let ms = self.connect_timeout.as_millis();
                Err(self.unreachable(format!("no connection within {ms} ms")))
            }
        }
    }

    /// Connects, without a limit on the time.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    async fn open(&self) -> Result<Greeted, Unreachable> {
        let mut stream = match &self.address {
            Address::Unix(path) => {
                let unix = UnixStream::connect(path).await.map_err(|e| self.unreachable(e))?;
                Stream::Unix(unix)
            }
            Address::Tcp(host, port) => {
                let tcp = TcpStream::connect((host.as_str(), *port)).await;
                Stream::tcp(tcp.map_err(|e| self.unreachable(e))?)
                    .map_err(|e| self.unreachable(e))?
            }
        };
        let (_, payload) = startup::packet(&mut stream).await.map_err(|e| self.unreachable(e))?;
        if payload.first() == Some(&0xff) {
            return Ok(Greeted::Refused(payload));
        }
        match Greeting::parse(&payload) {
            Some(greeting) => Ok(Greeted::Welcome(stream, Box::new(greeting))),
            None => Err(self.unreachable("it doesn't greet as MySQL or MariaDB")),
        }
    }

    /// Makes the connection an encrypted one where the settings and the engine want it. Returns
    /// it with the number of its next packet, the login's.
    ///
    /// # Errors
    /// [`Unreachable`]; the client has seen a greeting by now.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn encrypt(
        &self,
        stream: Stream,
        greeting: &Greeting,
        login: &Login,
    ) -> Result<(Stream, u8), Unreachable> {
        let (tcp, connector) = match (stream, &self.connector) {
            (Stream::Plain(tcp), Some(connector)) => (tcp, connector),
            (other, _) => return Ok((other, 1)),
        };
        if greeting.offered.has(bits::SSL) {
            return self.in_time(self.shake(tcp, connector, login)).await;
        }
        match self.mode {
            TlsMode::Prefer | TlsMode::Disable => Ok((Stream::Plain(tcp), 1)),
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => {
                Err(self.unreachable("it doesn't offer TLS, and the settings require it"))
            }
        }
    }

    /// Asks for encryption, and makes the connection an encrypted one.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    async fn shake(
        &self,
        mut tcp: TcpStream,
        connector: &ClientConnector,
        login: &Login,
    ) -> Result<(Stream, u8), Unreachable> {
        let host = match &self.address {
            Address::Tcp(host, _) => host.as_str(),
            Address::Unix(_) => "localhost",
        };
        let mut request = BytesMut::new();
        let next = frame::put(&mut request, 1, &login.head_for(true));
        tcp.write_all(&request).await.map_err(|e| self.unreachable(e))?;
        let stream = connector.connect(tcp, host).await.map_err(|e| self.unreachable(e))?;
        Ok((stream, next))
    }
}
