//! The same things said inside TLS. The server's certificate is all that may differ.

use super::{Case, Talk, Way, calling, cancelling, copying, extended, simple, starting};

fn said(name: &str, way: Way, run: super::Conversation) -> Case {
    let since = if way == Way::DirectTls { 18 } else { 0 };
    Case::new(name, run).by(way).since(since)
}

fn cancelled(talk: &mut Talk) {
    cancelling::longer_keys(talk);
}

fn in_the_middle(talk: &mut Talk) {
    talk.start();
    talk.kill();
    talk.end();
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        said("TLS: rows", Way::Tls, simple::rows),
        said("TLS: errors", Way::Tls, simple::errors),
        said("TLS: 20 MB", Way::Tls, simple::large),
        said("TLS: one byte at a time", Way::Tls, simple::byte_by_byte),
        said("TLS: a pipeline", Way::Tls, extended::several_syncs),
        said("TLS: portals", Way::Tls, extended::suspended),
        said("TLS: Flush", Way::Tls, extended::flushes),
        said("TLS: COPY in", Way::Tls, copying::copy_in),
        said("TLS: COPY out", Way::Tls, copying::out_large),
        said("TLS: FunctionCall", Way::Tls, calling::values),
        said("TLS: a cancel request", Way::Tls, cancelled),
        said("TLS: protocol 3.2", Way::Tls, starting::three_two),
        said("TLS: notifications", Way::Tls, simple::listen_notify),
        said("TLS: killed", Way::Tls, in_the_middle),
        said("TLS: replication", Way::Tls, starting::logical),
        said("direct TLS: rows", Way::DirectTls, simple::rows),
        said("direct TLS: 20 MB", Way::DirectTls, simple::large),
        said("direct TLS: a pipeline", Way::DirectTls, extended::several_syncs),
        said("direct TLS: COPY in", Way::DirectTls, copying::copy_in),
        said("direct TLS: a cancel request", Way::DirectTls, cancelled),
        said("direct TLS: killed", Way::DirectTls, in_the_middle),
    ]
}
