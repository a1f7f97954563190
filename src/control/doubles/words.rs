//! Why an engine is shut beside a fence, for whoever reads the log or an inspection at night.
//!
//! Purpose: each sentence says what was heard, what is closed for it, and what ends that. None
//! advises to have two sides take writes. Pure. Caller: `control/doubles.rs`. It decides nothing.

use super::{Standing, is_its_standby};
use crate::base::ids::EngineName;
use crate::control::notes::listed;
use crate::control::port::Server;

/// What ends a fence that shuts another engine; not where that would have two sides take writes.
fn way_out(fence: &Standing) -> String {
    let fenced = &fence.namespace;
    if fence.beside.is_empty() {
        return format!(
            "release the fence of {fenced} first (a target: enable its writes, or abort it)"
        );
    }
    format!(
        "take the engine out of the settings. Don't release the fence of {fenced} for it: its \
         operation has enabled writes of {}, and both would take writes",
        listed(&fence.beside)
    )
}

/// Of an engine that is the fenced server, by its own word.
pub(super) fn is_double(engine: &EngineName, fence: &Standing) -> String {
    let Standing { namespace: fenced, identity, .. } = fence;
    let timeline =
        identity.timeline.map_or_else(String::new, |number| format!(", timeline {number}"));
    format!(
        "engine {engine} is the server that {fenced} was fenced on ({}{timeline}): it is there \
         under another name now. Nothing is admitted on {engine} while that fence stands. Put the \
         urls back under the names they had and restart, or {}",
        identity.engine_id,
        way_out(fence)
    )
}

/// As [`is_double`], of a standby of it that has been promoted. A restart is no way out of that: it
/// forgets that it was one, and opens it behind the fence.
pub(super) fn was_promoted(engine: &EngineName, fence: &Standing) -> String {
    let Standing { namespace: fenced, identity, beside, .. } = fence;
    let end = if beside.is_empty() {
        format!(
            "the release of the fence of {fenced} opens it. Release that only where the server it \
             was acquired on is down for good: else both would take writes"
        )
    } else {
        format!(
            "if nobody is to reach it, take it out of the settings. Don't release the fence of \
             {fenced} for it: its operation has enabled writes of {}, and both would take writes",
            listed(beside)
        )
    };
    format!(
        "engine {engine} was a standby of the server that {fenced} was fenced on ({}), and has \
         been promoted: the fenced data can be written to there. Nothing is admitted on {engine} \
         while that fence stands. Leave it so, and don't restart the proxy with {engine} in its \
         settings: it would not know it again, and open it; {end}",
        identity.engine_id
    )
}

/// As [`is_double`], of an engine that may be promoted or forked for all that was heard of it.
pub(super) fn may_be_promoted(engine: &EngineName, fence: &Standing) -> String {
    let Standing { namespace: fenced, identity, .. } = fence;
    format!(
        "engine {engine} has the id of the server that {fenced} was fenced on ({}) and a later \
         timeline, and had said nothing yet when that fence went up, or when this process first \
         looked at it: it may have been a standby, and promoted since. Nothing is admitted on \
         {engine} while that fence stands. If it was made from that server before the fence, and \
         is no promoted standby, restart the proxy while {engine} answers; or {}",
        identity.engine_id,
        way_out(fence)
    )
}

/// Of an engine that doesn't say, or was shut before and is silent.
pub(super) fn may_be_double(
    engine: &EngineName,
    fence: &Standing,
    (in_place, said): (bool, Option<&Server>),
) -> String {
    let fenced = &fence.namespace;
    let own = fenced.engine();
    let standby = said.is_some_and(|said| is_its_standby(said, &fence.identity));
    let may_be = if standby {
        format!(
            "was a standby of the server that {fenced} was fenced on, and may be promoted by now"
        )
    } else {
        format!("may be the server that {fenced} was fenced on, under another name")
    };
    let (unseen, whose) = if in_place {
        (String::new(), "its control connection")
    } else {
        let unseen = format!("engine {own} is not seen to be that server now, and ");
        (unseen, "the control connections of both")
    };
    format!(
        "engine {engine} {may_be}: {unseen}engine {engine} does not answer its control \
         connection. Nothing is admitted on {engine} until it says which server it is. See to \
         {whose}, or {}",
        way_out(fence)
    )
}
