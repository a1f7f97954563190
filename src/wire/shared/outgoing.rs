//! Bytes on their way out of one chunk: passed on as they are, or with something put between.
//!
//! Purpose: the usual case, a whole chunk forwarded unchanged, costs no copy: the approved bytes
//! are one range of the chunk, written straight from the read buffer. Only when something is
//! injected or left out are bytes collected in the direction's pending buffer.
//!
//! Invariant 1: [`Outgoing::statement`] and [`Outgoing::instead`] are the only ways for a client's
//! statement to reach an engine, and they take the lease. Used by every relay's two directions; it
//! does no I/O.

use std::ops::Range;

use bytes::BytesMut;

use crate::gate::lease::Lease;

/// One chunk being sorted.
pub struct Outgoing<'a> {
    chunk: &'a [u8],
    run: Range<usize>,
    pending: &'a mut BytesMut,
}

impl<'a> Outgoing<'a> {
    /// Starts with nothing approved. `pending` is what couldn't be written yet, in order.
    pub fn new(chunk: &'a [u8], pending: &'a mut BytesMut) -> Self {
        Self { chunk, run: 0..0, pending }
    }

    /// The chunk.
    pub fn chunk(&self) -> &'a [u8] {
        self.chunk
    }

    /// Approves bytes of a client's statement, under its lease.
    pub fn statement(&mut self, _lease: &Lease, range: Range<usize>) {
        self.pass(range);
    }

    /// Puts other bytes in the place of a client's statement, under its lease.
    pub fn instead(&mut self, _lease: &Lease, write: impl FnOnce(&mut BytesMut)) {
        self.inject(write);
    }

    /// Approves bytes that start no work by themselves: Sync, Flush, Terminate, data of COPY or
    /// LOCAL INFILE, the rest of a message already begun, and everything from the engine.
    pub fn continuation(&mut self, range: Range<usize>) {
        self.pass(range);
    }

    /// Puts the proxy's own bytes behind everything approved so far.
    pub fn inject(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.collect();
        write(self.pending);
    }

    /// The rest to write directly from the chunk. Empty if anything is pending: then the rest was
    /// added there.
    pub fn finish(mut self) -> Range<usize> {
        if self.pending.is_empty() {
            return self.run;
        }
        self.collect();
        0..0
    }

    fn pass(&mut self, range: Range<usize>) {
        if self.run.is_empty() {
            self.run = range;
        } else if self.run.end == range.start {
            self.run.end = range.end;
        } else {
            self.collect();
            self.run = range;
        }
    }

    fn collect(&mut self) {
        if let Some(bytes) = self.chunk.get(self.run.clone()) {
            self.pending.extend_from_slice(bytes);
        }
        self.run = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untouched_chunk_is_one_range_and_copies_nothing() {
        let mut pending = BytesMut::new();
        let mut out = Outgoing::new(b"abcdef", &mut pending);
        out.continuation(0..2);
        out.continuation(2..6);
        assert_eq!(out.finish(), 0..6);
        assert!(pending.is_empty());
    }

    #[test]
    fn injected_and_dropped_bytes_keep_the_order() {
        let mut pending = BytesMut::new();
        let mut out = Outgoing::new(b"abcdef", &mut pending);
        out.continuation(0..2);
        out.inject(|buffer| buffer.extend_from_slice(b"-"));
        out.continuation(3..4);
        out.continuation(5..6);
        assert_eq!(out.finish(), 0..0);
        assert_eq!(&pending[..], b"ab-df");
    }
}
