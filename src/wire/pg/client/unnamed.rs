//! What goes to the engine in the place of a message about the unnamed statement.
//!
//! Purpose: the client's half of `auto_prepare.rs`: which Parse is named, left out or forwarded as
//! it is, and by which name a Bind or Describe of `""` goes. Without `auto_prepare` everything is
//! forwarded as it is. Everything here is behind admission, under the session's lease (invariant
//! 1). Pure; a part of `client.rs`.

use bytes::{BufMut as _, BytesMut};

use super::{Message, Ruling, Stop, broken};
use crate::base::arm::{Removable, removed};
use crate::base::limits;
use crate::sql::{StatementClass, must_be_parsed_anew};
use crate::wire::pg::auto_prepare::{AutoPrepare, Awaited, Meaning, Plan};
use crate::wire::pg::frame;
use crate::wire::pg::owed::Entry;
use crate::wire::pg::prepared::Traits;

/// Where a message stands: its pipeline's number, and how many of its messages are in front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) pipeline: u64,
    pub(super) at: u32,
}

impl Place {
    /// Of the message that was just counted in this entry.
    pub(super) const fn of(entry: &Entry) -> Self {
        Self { pipeline: entry.number, at: entry.asked().saturating_sub(1) }
    }

    /// Of what stands behind all messages of this entry.
    pub(super) const fn behind(entry: &Entry) -> Self {
        Self { pipeline: entry.number, at: entry.asked() }
    }
}

fn close(out: &mut BytesMut, kind: u8, name: &str) {
    let body = [&[kind][..], name.as_bytes(), b"\0"].concat();
    frame::put(out, b'C', &body);
}

impl Message<'_, '_, '_> {
    fn auto(&mut self) -> Option<&mut AutoPrepare> {
        self.conversation.auto.as_deref_mut()
    }

    /// A statement of the client's that is called as the proxy's own are is no accident.
    pub(super) fn is_taken(&self, name: &[u8]) -> Option<Ruling> {
        let auto = self.conversation.auto.as_deref()?;
        auto.is_called(name).then(|| broken("a statement with a name that is the proxy's own"))
    }

    /// Whether this is a name of the proxy's own, whose text the client's own names don't tell.
    pub(super) fn is_ours(&self, name: &[u8]) -> bool {
        self.conversation.auto.as_deref().is_some_and(|auto| auto.is_called(name))
    }

    /// What becomes of an admitted Parse; sends what is to be sent in front of it.
    pub(super) fn plan_parse(&mut self, name: &[u8], traits: Traits, guarded: bool) -> Plan {
        let conversation = &*self.conversation;
        let may = conversation.auto.is_some()
            && name.is_empty()
            && traits.repeatable
            && !guarded
            && self.is_whole()
            && conversation.may_auto_prepare();
        if !may {
            return Plan::AsItIs;
        }
        let pipeline = conversation.owed.next_number();
        let lexing = conversation.lexing;
        let body = self.body.get(1..).unwrap_or_default();
        let moves = || frame::text(body).is_none_or(|(text, _)| must_be_parsed_anew(text, lexing));
        let Some(auto) = self.conversation.auto.as_deref_mut() else { return Plan::AsItIs };
        let plan = auto.plan(body, pipeline, moves);
        if matches!(plan, Plan::Name(_)) {
            self.close_spare();
        }
        plan
    }

    /// Closes what isn't used any more, a few at a time.
    fn close_spare(&mut self) {
        for _ in 0..limits::AUTO_PREPARE_CLOSES {
            let Some(auto) = self.auto() else { return };
            let Some(number) = auto.next_spare() else { return };
            let name = auto.name(number);
            self.own_close(Awaited::Closing(number), &name);
        }
    }

    /// The proxy's own Close of a statement, in the client's pipeline.
    fn own_close(&mut self, what: Awaited, name: &str) {
        let place = Place::of(self.conversation.owed.closing());
        self.conversation.prepared.closing(None, place.pipeline);
        if let Some(auto) = self.auto() {
            auto.awaits(place.pipeline, place.at, what);
        }
        self.out.inject(|buffer| close(buffer, b'S', name));
    }

    /// Forwards a Parse, or what stands in its place.
    pub(super) fn forward_parse(&mut self, name: &[u8], plan: Plan, place: Place) -> Ruling {
        let body = self.body;
        let Some(auto) = self.conversation.auto.as_deref_mut() else { return Ruling::Statement };
        let Some(lease) = &self.conversation.lease else {
            return broken("admitted without a lease (a bug)");
        };
        match plan {
            Plan::AsItIs => {
                let unnamed = name.is_empty();
                let what = if unnamed { Awaited::Parse } else { Awaited::Theirs(1) };
                auto.awaits(place.pipeline, place.at, what);
                return Ruling::Statement;
            }
            Plan::Name(number) => {
                auto.awaits(place.pipeline, place.at, Awaited::Name(number));
                let named = [auto.name(number).as_bytes(), body].concat();
                self.out.instead(lease, |buffer| frame::put(buffer, b'P', &named));
            }
            Plan::StandIn(number) => {
                auto.awaits(place.pipeline, place.at, Awaited::StandIn(number));
                self.out.instead(lease, |buffer| close(buffer, b'P', auto.nobody()));
            }
        }
        Ruling::Drop
    }

    /// What a statement's name means to a message that stands here.
    ///
    /// # Errors
    /// The message must wait until earlier pipelines are answered.
    pub(super) fn meaning(&mut self, statement: &[u8]) -> Result<Meaning, Ruling> {
        let pipeline = self.conversation.owed.next_number();
        let copies = self.conversation.owed.is_in_copy();
        match self.auto() {
            // There it is an error, whatever it names.
            Some(_) if copies => Ok(Meaning::Engine),
            Some(auto) if statement.is_empty() => {
                auto.meaning(pipeline).ok_or(Ruling::Stop(Stop::Blocked))
            }
            Some(_) | None => Ok(Meaning::Engine),
        }
    }

    /// Whether a statement may not be the text any more that its client parsed: then it is judged
    /// as one that may do anything.
    pub(super) fn is_doubtful(&self, meaning: Meaning) -> bool {
        let auto = self.conversation.auto.as_deref();
        auto.is_some_and(|auto| auto.is_doubtful(meaning)) && !removed(Removable::AutoDoubt)
    }

    /// Where the client has no unnamed statement the engine is made to have none.
    pub(super) fn clear(&mut self, meaning: Meaning) {
        if meaning == Meaning::Gone {
            self.own_close(Awaited::Clearing, "");
        }
    }

    /// Forwards a Bind or Describe of `""`: `in_front` is what stands in front of its name.
    pub(super) fn forward_by(&mut self, meaning: Meaning, in_front: &[u8]) -> Ruling {
        let (tag, body) = (self.header.tag, self.header.body);
        let Meaning::Ours(number) = meaning else { return Ruling::Statement };
        let (Some(auto), Some(lease)) = (&self.conversation.auto, &self.conversation.lease) else {
            return broken("a name without a lease (a bug)");
        };
        let name = auto.name(number);
        self.out.instead(lease, |buffer| {
            let length = body.saturating_add(4 + name.len());
            buffer.put_u8(tag);
            // A frame's body is at most a gigabyte.
            buffer.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
            buffer.put_slice(in_front);
            buffer.put_slice(name.as_bytes());
        });
        Ruling::Behind(in_front.len())
    }

    /// A Close is forwarded.
    pub(super) fn note_close(&mut self, statement: Option<&[u8]>, place: Place) {
        let what = match statement {
            Some(b"") => Awaited::Close,
            Some(_) | None => Awaited::Theirs(1),
        };
        if let Some(auto) = self.auto() {
            auto.awaits(place.pipeline, place.at, what);
        }
    }

    /// An Execute of at most `most` rows is forwarded. Where rows of a write are left, what it has
    /// written is seen only behind the next Parse (there the engine counts a command; it doesn't
    /// at a Close): in this pipeline each is one.
    pub(super) fn note_execute(&mut self, class: StatementClass, most: &[u8]) {
        let unseen = !matches!(class, StatementClass::Read | StatementClass::TransactionControl);
        if unseen
            && most != [0; 4]
            && let Some(auto) = self.auto()
        {
            auto.not_calm();
        }
    }

    /// A simple query is forwarded: it ends the unnamed statement.
    pub(super) fn note_query(&mut self, place: Place) {
        if self.header.tag == b'Q'
            && let Some(auto) = self.auto()
        {
            if place.at > 0 {
                auto.mixed();
            }
            auto.awaits(place.pipeline, place.at, Awaited::Query);
        }
    }
}
