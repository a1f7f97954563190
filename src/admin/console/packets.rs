//! The bytes of a console's client, within bounds.
//!
//! Purpose: the libraries behind the consoles read whole messages, however long they say they are.
//! Here each message's length is looked at before the library sees it. For MySQL, where the library
//! ends connections, or says OK, on what it doesn't know, each command is checked and those are
//! turned into a text that the console answers with an error; and it gets one packet at a time,
//! because it loses its own buffer behind the first of two.
//!
//! Callers: `console/pg.rs`, `console/mysql.rs`. It knows lengths and command bytes, no statements.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::base::limits;

/// Bytes that are read at a time.
const READ_BYTES: usize = 8 << 10;

fn too_long(length: usize, most: usize) -> io::Error {
    let words = format!("a message of {length} bytes; at most {most} are taken");
    io::Error::new(io::ErrorKind::InvalidData, words)
}

/// A PostgreSQL client's stream whose messages have at most so many bytes.
#[derive(Debug)]
pub(super) struct Bounded<S> {
    stream: S,
    most: usize,
    /// Whether messages have a type byte already.
    typed: bool,
    /// What has come of the head of a message.
    head: Vec<u8>,
    /// Bytes of the message that haven't come yet.
    left: usize,
}

impl<S> Bounded<S> {
    pub(super) const fn postgres(stream: S, most: usize) -> Self {
        Self { stream, most, typed: false, head: Vec::new(), left: 0 }
    }

    /// Looks at bytes as they come.
    fn look(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let now = self.left.min(bytes.len());
                self.left -= now;
                bytes = &bytes[now..];
                continue;
            }
            let wanted = if self.typed { 5 } else { 8 };
            let now = (wanted - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..now]);
            bytes = &bytes[now..];
            if self.head.len() == wanted {
                self.begin()?;
                self.head.clear();
            }
        }
        Ok(())
    }

    /// A head is complete.
    fn begin(&mut self) -> io::Result<()> {
        let number = |at: usize| -> usize {
            let four = self.head.get(at..at + 4).and_then(|four| four.try_into().ok());
            u32::from_be_bytes(four.unwrap_or_default()) as usize
        };
        let (length, counted) = if self.typed { (number(1), 4) } else { (number(0), 8) };
        if length > self.most {
            return Err(too_long(length, self.most));
        }
        // A length below its own size is the library's to refuse.
        self.left = length.saturating_sub(counted);
        const SSL: usize = 80_877_103;
        const GSS: usize = 80_877_104;
        // Behind a request for encryption another head without a type comes.
        self.typed = self.typed || !(length == 8 && [SSL, GSS].contains(&number(4)));
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let looked = self.look(&buf.filled()[before..]);
        if looked.is_err() {
            // A read that fails gives nothing.
            buf.set_filled(before);
        }
        Poll::Ready(looked)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// In front of a text that is a statement.
pub(super) const STATEMENT: char = ' ';
/// In front of a text that says what was refused.
pub(super) const REFUSED: char = '\u{1}';

/// Which numbered statements are open, and how the next error packet is to be marked: what the
/// library can't be told in any other way.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Numbers of prepared statements.
    pub(super) open: std::collections::BTreeSet<u32>,
    /// Number and SQLSTATE of the error that is being written.
    pub(super) error: Option<(u16, &'static str)>,
}

/// Shared by both directions of a connection, and by who answers.
pub(super) type SharedNotes = Arc<Mutex<Notes>>;

/// Looks at the notes.
pub(super) fn notes(shared: &SharedNotes) -> std::sync::MutexGuard<'_, Notes> {
    // Each change is one assignment: a panic elsewhere can't have left half of one.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a MySQL client says, as the library may hear it.
pub(super) struct Incoming<R> {
    stream: R,
    notes: SharedNotes,
    /// As it came.
    raw: BytesMut,
    /// As it is passed on.
    checked: BytesMut,
    /// Bytes of the packet that is being passed on.
    left: usize,
    ended: bool,
}

impl<R> Incoming<R> {
    /// `first` is passed on before anything of the client's.
    pub(super) fn new(stream: R, notes: SharedNotes, first: &[u8]) -> Self {
        let mut checked = BytesMut::new();
        packet(&mut checked, 1, first);
        Self { stream, notes, raw: BytesMut::new(), checked, left: 0, ended: false }
    }

    /// Takes whole packets out of what came.
    fn check(&mut self) {
        while !self.ended && self.raw.len() >= 4 {
            let length = length(&self.raw);
            if length > limits::CONSOLE_MESSAGE_BYTES_MAX {
                let words = too_long(length, limits::CONSOLE_MESSAGE_BYTES_MAX).to_string();
                refused(&mut self.checked, &words);
                // Where the next packet begins is known only once all of this one has come.
                self.ended = true;
                return;
            }
            if self.raw.len() < 4 + length {
                return;
            }
            self.raw.advance(4);
            let payload = self.raw.split_to(length);
            command(&payload, &self.notes, &mut self.checked);
        }
    }
}

fn length(head: &[u8]) -> usize {
    usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16
}

/// Writes one packet; `payload` is far shorter than a packet may be.
pub(super) fn packet(out: &mut BytesMut, number: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.put_slice(&length.to_le_bytes()[..3]);
    out.put_u8(number);
    out.put_slice(payload);
}

fn refused(out: &mut BytesMut, what: &str) {
    packet(out, 0, format!("\u{3}{REFUSED}{what}").as_bytes());
}

/// Passes a command on, as the library understands it.
fn command(payload: &[u8], shared: &SharedNotes, out: &mut BytesMut) {
    const QUIT: u8 = 0x01;
    const INIT_DB: u8 = 0x02;
    const QUERY: u8 = 0x03;
    const FIELD_LIST: u8 = 0x04;
    const PING: u8 = 0x0e;
    const PREPARE: u8 = 0x16;
    const EXECUTE: u8 = 0x17;
    const LONG_DATA: u8 = 0x18;
    const CLOSE: u8 = 0x19;
    const RESET_STATEMENT: u8 = 0x1a;
    const RESET_CONNECTION: u8 = 0x1f;
    let Some((kind, rest)) = payload.split_first() else {
        return refused(out, "an empty command");
    };
    let number = rest.get(..4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
    match *kind {
        QUERY | PREPARE => match std::str::from_utf8(rest) {
            // The library answers some texts by itself unless something stands in front of them.
            Ok(text) => {
                packet(out, 0, format!("{}{STATEMENT}{text}", char::from(*kind)).as_bytes())
            }
            Err(_) => {
                let text = format!("{}{REFUSED}a text that isn't UTF-8", char::from(*kind));
                packet(out, 0, text.as_bytes());
            }
        },
        INIT_DB if std::str::from_utf8(rest).is_ok() => packet(out, 0, payload),
        QUIT | PING if rest.is_empty() => packet(out, 0, payload),
        FIELD_LIST => packet(out, 0, payload),
        // Nothing has to be reset.
        RESET_STATEMENT | RESET_CONNECTION => packet(out, 0, &[PING]),
        EXECUTE if rest.len() >= 9 => match number {
            Some(number) if notes(shared).open.contains(&number) => packet(out, 0, payload),
            Some(_) | None => refused(out, "a statement that wasn't prepared"),
        },
        CLOSE => {
            if rest.len() == 4 {
                packet(out, 0, payload);
            }
        }
        // Statements here have no parameters, and this has no answer.
        LONG_DATA => {}
        other => refused(out, &format!("command 0x{other:02x} in this form")),
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Incoming<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.checked.is_empty() {
                // One packet at a time: opensrv-mysql 0.7 frees the buffer under a packet that it
                // hands out while another one is behind it there (packet_reader.rs, next_async).
                if this.left == 0 {
                    this.left = 4 + length(&this.checked);
                }
                let now = this.left.min(buf.remaining());
                buf.put_slice(&this.checked.split_to(now));
                this.left -= now;
                return Poll::Ready(Ok(()));
            }
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            let mut room = [0_u8; READ_BYTES];
            let mut read = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            this.ended = read.filled().is_empty();
            this.raw.extend_from_slice(read.filled());
            this.check();
        }
    }
}

/// What the library says, as the client is to hear it.
pub(super) struct Outgoing<W> {
    stream: W,
    notes: SharedNotes,
    /// Packets that the client doesn't get: the library's own greeting and its OK.
    swallowed: usize,
    /// As the library wrote it, from the beginning of a packet.
    raw: BytesMut,
    ready: BytesMut,
}

impl<W> Outgoing<W> {
    pub(super) fn new(stream: W, notes: SharedNotes, swallowed: usize) -> Self {
        Self { stream, notes, swallowed, raw: BytesMut::new(), ready: BytesMut::new() }
    }

    fn check(&mut self) {
        while self.raw.len() >= 4 && self.raw.len() >= 4 + length(&self.raw) {
            let whole = 4 + length(&self.raw);
            let mut one = self.raw.split_to(whole);
            if self.swallowed > 0 {
                self.swallowed -= 1;
                continue;
            }
            // 0xff begins an error and no other packet: number, `#`, SQLSTATE.
            if one.len() >= 13
                && one[4] == 0xff
                && let Some((number, state)) = notes(&self.notes).error.take()
            {
                one[5..7].copy_from_slice(&number.to_le_bytes());
                if let Ok(state) = <[u8; 5]>::try_from(state.as_bytes()) {
                    one[8..13].copy_from_slice(&state);
                }
            }
            self.ready.extend_from_slice(&one);
        }
    }
}

impl<W: AsyncWrite + Unpin> Outgoing<W> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.ready.is_empty() {
            let now = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.ready))?;
            if now == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.ready.advance(now);
        }
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Outgoing<W> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.ready.len() > limits::CONSOLE_WRITE_BYTES {
            ready!(this.poll_drain(cx))?;
        }
        this.raw.extend_from_slice(buf);
        this.check();
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn framed(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = BytesMut::new();
        payloads.iter().for_each(|payload| packet(&mut out, 9, payload));
        out.to_vec()
    }

    /// What the library may hear of these bytes, read by read.
    async fn heard(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut incoming = Incoming::new(bytes, SharedNotes::default(), b"first");
        let mut reads = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count @ 1..) = incoming.read(&mut buffer).await {
            reads.push(buffer[..count].to_vec());
        }
        reads
    }

    #[tokio::test]
    async fn each_read_has_one_packet_and_no_more() {
        let sent = framed(&[&[0x19, 1, 0, 0, 0], b"\x03SHOW HELP", &[0x1f], &[0x0e]]);
        let reads = heard(&sent).await;
        let expected: [&[u8]; 5] =
            [b"first", &[0x19, 1, 0, 0, 0], b"\x03 SHOW HELP", &[0x0e], &[0x0e]];
        assert_eq!(reads.len(), expected.len(), "{reads:?}");
        for (index, (read, expected)) in reads.iter().zip(expected).enumerate() {
            assert_eq!((&read[4..], length(read)), (expected, expected.len()));
            assert_eq!(read[3], u8::from(index == 0), "numbers begin anew");
        }
    }

    #[tokio::test]
    async fn what_the_library_does_not_know_becomes_a_text_that_is_refused() {
        for payload in [
            &b""[..],
            b"\x03\xff",
            b"\x16\xff",
            b"\x11user",
            b"\x17\x01\0\0\0\0\x01\0\0\0",
            b"\x0ex",
            b"\x02\xff",
        ] {
            let reads = heard(&framed(&[payload])).await;
            let text = String::from_utf8(reads[1][5..].to_vec()).unwrap();
            assert!(text.starts_with(REFUSED), "{payload:?}: {text:?}");
        }
        let dropped = heard(&framed(&[&[0x18, 1, 0, 0, 0, 0, 0, 7], &[0x19, 1]])).await;
        assert_eq!(dropped.len(), 1, "only the first packet: {dropped:?}");
    }

    #[tokio::test]
    async fn a_packet_that_is_too_long_is_refused_by_its_head() {
        let reads = heard(&[0xff, 0xff, 0xff, 0, 3, b'x']).await;
        let text = String::from_utf8_lossy(&reads[1][5..]).into_owned();
        assert!(text.contains("16777215 bytes") && reads.len() == 2, "{text}");
    }

    #[tokio::test]
    async fn errors_get_their_own_numbers_and_the_librarys_login_is_swallowed() {
        let shared = SharedNotes::default();
        let mut sent = Vec::new();
        let mut outgoing = Outgoing::new(&mut sent, Arc::clone(&shared), 2);
        let error = b"\xff\x51\x04#HY000no";
        outgoing.write_all(&framed(&[b"greeting", b"ok"])).await.unwrap();
        notes(&shared).error = Some((9754, "ZF104"));
        // In pieces, as the library writes them.
        for piece in framed(&[b"\x05row", error, error]).chunks(3) {
            outgoing.write_all(piece).await.unwrap();
        }
        outgoing.flush().await.unwrap();
        assert_eq!(sent, framed(&[b"\x05row", b"\xff\x1a\x26#ZF104no", error]));
    }

    #[tokio::test]
    async fn messages_of_postgresql_are_bounded_before_they_are_read() {
        let startup = [&[0, 0, 0, 9, 0, 3, 0, 0, 0][..], b"Q\0\0\0\x05\0"].concat();
        let ssl = [0, 0, 0, 8, 4, 210, 22, 47];
        for (sent, good) in [
            (startup.clone(), true),
            ([&ssl[..], &startup].concat(), true),
            ([&startup[..], b"Q\0\0\x10\x01"].concat(), false),
            (b"\0\0\x10\x01\0\x03\0\0".to_vec(), false),
            (b"GET / HTTP".to_vec(), false),
        ] {
            for size in [1, 3, 100] {
                let (mut ours, theirs) = tokio::io::duplex(size);
                let mut bounded = Bounded::postgres(theirs, 4096);
                let read = async move {
                    let read = bounded.read_to_end(&mut Vec::new()).await;
                    // Whoever writes learns that nobody reads any more.
                    drop(bounded);
                    read
                };
                let write = async {
                    let _cut = ours.write_all(&sent).await;
                    drop(ours);
                };
                let (read, ()) = tokio::join!(read, write);
                assert_eq!(read.is_ok(), good, "{sent:?} by {size}: {read:?}");
            }
        }
    }
}
