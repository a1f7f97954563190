//! Connecting a session to its engine.
//!
//! Purpose: W25 (engine side) and W26: TCP or Unix socket, TLS as the engine's settings say, and
//! one sentence with the engine's name when it doesn't work. Also carries CancelRequests there.
//! Called by `session.rs` and `cancel.rs`.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::base::ids::EngineName;
use crate::base::limits;
use crate::telemetry::timer::timeout;
use crate::tls::{ClientConnector, ClientTls, Stream, TlsError, TlsMode, settle};
use crate::wire::pg::cancel::CancelKey;
use crate::wire::shared::address::{Address, Unreachable};
use crate::wire::shared::patience::{TooLate, within};

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// One engine as sessions see it.
#[derive(Debug)]
pub struct Endpoint {
    name: EngineName,
    address: Address,
    mode: TlsMode,
    connector: Option<ClientConnector>,
    connect_timeout: Duration,
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
        Ok(Self { name, address, mode: tls.mode, connector: tls.connector()?, connect_timeout })
    }

    /// The engine's name.
    #[must_use]
    pub const fn name(&self) -> &EngineName {
        &self.name
    }

    fn unreachable(&self, reason: impl ToString) -> Unreachable {
        Unreachable::new(&self.name, &self.address, reason)
    }

    /// Opens a connection, TLS included.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn connect(&self) -> Result<Stream, Unreachable> {
        match within(self.connect_timeout, self.open()).await {
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
    async fn open(&self) -> Result<Stream, Unreachable> {
        let (host, port) = match &self.address {
            Address::Unix(path) => {
                let unix = UnixStream::connect(path).await.map_err(|e| self.unreachable(e))?;
                return Ok(Stream::Unix(unix));
            }
            Address::Tcp(host, port) => (host.as_str(), *port),
        };
        let tcp = TcpStream::connect((host, port)).await.map_err(|e| self.unreachable(e))?;
        settle(&tcp).map_err(|e| self.unreachable(e))?;
        let Some(connector) = &self.connector else { return Ok(Stream::Plain(tcp)) };
        let mut tcp = tcp;
        tcp.write_all(&SSL_REQUEST).await.map_err(|e| self.unreachable(e))?;
        let mut answer = [0; 1];
        tcp.read_exact(&mut answer).await.map_err(|e| self.unreachable(e))?;
        match (answer, self.mode) {
            ([b'S'], _) => connector.connect(tcp, host).await.map_err(|e| self.unreachable(e)),
            (_, TlsMode::Prefer | TlsMode::Disable) => Ok(Stream::Plain(tcp)),
            (_, TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull) => {
                Err(self.unreachable("it doesn't offer TLS, and the settings require it"))
            }
        }
    }

    /// Delivers a CancelRequest and waits until the engine has taken it (it closes).
    ///
    /// # Cancel safety
    /// Dropping the future may or may not have delivered the request.
    pub(crate) async fn cancel(&self, pid: i32, key: &CancelKey) -> Result<(), Unreachable> {
        let deliver = async {
            let key = key.expose();
            let mut stream = self.open().await?;
            let length = i32::try_from(12 + key.len()).unwrap_or(i32::MAX);
            let mut packet = length.to_be_bytes().to_vec();
            packet.extend_from_slice(&80_877_102_u32.to_be_bytes());
            packet.extend_from_slice(&pid.to_be_bytes());
            packet.extend_from_slice(key);
            stream.write_all(&packet).await.map_err(|e| self.unreachable(e))?;
            stream.flush().await.map_err(|e| self.unreachable(e))?;
            // The engine signals the backend before it closes; nothing else is ever sent.
            let mut end = [0; 1];
            let _closed = stream.read(&mut end).await;
            Ok(())
        };
        let bound = Duration::from_millis(limits::CANCEL_TIMEOUT_MS);
        match timeout(bound, deliver).await {
            Ok(result) => result,
            Err(_) => Err(self.unreachable("the cancel request wasn't taken in time")),
        }
    }
}
