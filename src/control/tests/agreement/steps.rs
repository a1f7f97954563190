//! What happens in a sequence, and how it is drawn.

use super::model::{Approvers, Creation, Fate, Kind, Purpose, Terms};
use super::world::How;
use super::*;

/// The commands, all of them.
const PLAYED: [Kind; 11] = [
    Kind::Acquire,
    Kind::SetRead,
    Kind::ClearRead,
    Kind::Release,
    Kind::Create,
    Kind::Seal,
    Kind::Validate,
    Kind::Publish,
    Kind::Enable,
    Kind::Abort,
    Kind::Adopt,
];

/// What a caller believes of state and revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belief {
    Right,
    OldRevision,
    OtherState,
}

/// How a command comes, and what happens to it.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    pub(super) fates: Vec<Fate>,
    pub(super) how: How,
    pub(super) key: bool,
    pub(super) unreadable: bool,
    /// What a creation comes to, and whether the store can be read behind it.
    pub(super) creation: Creation,
    pub(super) blind: bool,
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A command under an id that is mostly its own; `None` is what goes on with the move.
    Ask {
        kind: Option<Kind>,
        by: u8,
        id: Option<u8>,
        belief: Belief,
        terms: Terms,
        manner: Manner,
    },
    /// An earlier one once more: to the letter, or with another body.
    Again {
        back: usize,
        altered: bool,
        manner: Manner,
    },
    /// A session begins to write or to read, or ends.
    Write,
    Read,
    /// A transaction that reads becomes idle, or ends.
    Idle,
    /// It would write; where there is none, one begins.
    Rise,
    /// Somebody asks for a capability; `None` is the owner, and for what the state has.
    Issue {
        purpose: Option<Purpose>,
        by: Option<u8>,
        belief: Belief,
    },
    /// A session that shows the last one begins its work, or ends it.
    Work,
    /// In its transaction it would read or write on.
    More {
        writes: bool,
    },
    /// A question of a validation, which may wait for its answer; the one that waits gets it.
    Question {
        by: Option<u8>,
        belief: Belief,
        parks: bool,
    },
    /// Something around the proxy holds a lock, or the engine doesn't answer.
    Busy(bool),
    Silent(bool),
    /// The name leads to another server.
    Elsewhere(bool),
    /// Somebody puts something into the database, or drops it, around the proxy.
    Fill,
    Drop,
    /// The command that is at work behind comes to its answer.
    Settle,
    Restart,
    Spoil(Spoil),
}

/// What is done to row and marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoil {
    Save,
    PutStoreBack,
    PutMarkerBack,
    LoseStore,
    LoseMarker,
    GarbleMarker,
}

fn terms() -> impl Strategy<Value = Terms> {
    let deadline = prop_oneof![
        1 => Just(None),
        2 => Just(Some(0)),
        3 => Just(Some(10_000)),
    ];
    let owner = prop_oneof![6 => Just(0_u8), 1 => Just(9)];
    let approvers = prop_oneof![
        8 => Just(Approvers::Two),
        1 => Just(Approvers::OneTwice),
        1 => Just(Approvers::OneOnly),
    ];
    let mostly = || prop::bool::weighted(0.9);
    let target =
        (prop::bool::weighted(0.04), prop::bool::weighted(0.85), prop::bool::weighted(0.04));
    // Which database is meant is known when the command is sent: 0 is the one that is there.
    let database = prop_oneof![9 => Just(0_u8), 1 => Just(9)];
    (deadline, prop::bool::weighted(0.3), database, target, owner, approvers, mostly()).prop_map(
        |(deadline_ms, force, database, (template, good, long), owner, approvers, reason)| Terms {
            deadline_ms,
            force,
            database,
            template,
            good,
            long,
            owner,
            approvers,
            reason,
        },
    )
}

fn creation() -> impl Strategy<Value = Creation> {
    prop_oneof![
        8 => Just(Creation::Made),
        1 => Just(Creation::Exists),
        1 => Just(Creation::Refused),
        1 => Just(Creation::NotAsked),
        2 => any::<bool>().prop_map(|made| Creation::Unknown { made }),
        1 => Just(Creation::Speechless),
    ]
}

fn manner() -> impl Strategy<Value = Manner> {
    let fate = prop_oneof![
        60 => Just(Fate::Lands),
        3 => Just(Fate::KnownLost),
        3 => Just(Fate::UnknownLanded),
        3 => Just(Fate::UnknownLost),
        1 => Just(Fate::DiesBefore),
        1 => Just(Fate::DiesBehind),
    ];
    let how = prop_oneof![4 => Just(How::Stay), 1 => Just(How::Return), 2 => Just(How::Behind)];
    let fates = prop::collection::vec(fate, 0..3);
    let rare = || prop::bool::weighted(0.04);
    (fates, how, prop::bool::weighted(0.85), rare(), creation(), prop::bool::weighted(0.2))
        .prop_map(|(fates, how, key, unreadable, creation, blind)| Manner {
            fates,
            how,
            key,
            unreadable,
            creation,
            blind,
        })
}

fn belief() -> impl Strategy<Value = Belief> {
    prop_oneof![
        10 => Just(Belief::Right),
        2 => Just(Belief::OldRevision),
        1 => Just(Belief::OtherState),
    ]
}

fn operation() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(1_u8), 2 => Just(2), 1 => Just(3)]
}

fn command() -> impl Strategy<Value = Step> {
    let id = prop_oneof![8 => Just(None), 1 => (0_u8..3).prop_map(Some)];
    let kind = prop_oneof![
        1 => Just(None),
        1 => prop::sample::select(&PLAYED[..]).prop_map(Some),
    ];
    (kind, operation(), id, belief(), terms(), manner()).prop_map(
        |(kind, by, id, belief, terms, manner)| Step::Ask { kind, by, id, belief, terms, manner },
    )
}

fn spoil() -> impl Strategy<Value = Spoil> {
    prop_oneof![
        3 => Just(Spoil::Save),
        2 => Just(Spoil::PutStoreBack),
        2 => Just(Spoil::PutMarkerBack),
        1 => Just(Spoil::LoseStore),
        2 => Just(Spoil::LoseMarker),
        1 => Just(Spoil::GarbleMarker),
    ]
}

/// What sessions with a capability, and questions, do.
fn target() -> impl Strategy<Value = Step> {
    let purpose = prop_oneof![
        2 => Just(None),
        1 => Just(Some(Purpose::Import)),
        1 => Just(Some(Purpose::Validation)),
    ];
    let by = || prop_oneof![2 => Just(None), 1 => operation().prop_map(Some)];
    prop_oneof![
        5 => (purpose, by(), belief())
            .prop_map(|(purpose, by, belief)| Step::Issue { purpose, by, belief }),
        5 => Just(Step::Work),
        3 => any::<bool>().prop_map(|writes| Step::More { writes }),
        3 => (by(), belief(), any::<bool>())
            .prop_map(|(by, belief, parks)| Step::Question { by, belief, parks }),
    ]
}

/// What sessions without one do.
fn session() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Write),
        2 => Just(Step::Read),
        3 => Just(Step::Idle),
        5 => Just(Step::Rise),
    ]
}

/// What happens to the engine.
fn engine() -> impl Strategy<Value = Step> {
    let often = |on: f64| prop::bool::weighted(on);
    prop_oneof![
        4 => often(0.4).prop_map(Step::Busy),
        2 => often(0.25).prop_map(Step::Silent),
        2 => often(0.25).prop_map(Step::Elsewhere),
        1 => Just(Step::Fill),
        2 => Just(Step::Drop),
    ]
}

/// A command that nothing gets in the way of.
fn smooth(kind: Option<Kind>, by: u8, good: bool) -> Step {
    let terms = Terms {
        deadline_ms: Some(10_000),
        force: false,
        database: 0,
        template: false,
        good,
        long: false,
        owner: 0,
        approvers: Approvers::Two,
        reason: true,
    };
    let manner = Manner {
        fates: Vec::new(),
        how: How::Stay,
        key: true,
        unreadable: false,
        creation: Creation::Made,
        blind: false,
    };
    Step::Ask { kind, by, id: None, belief: Belief::Right, terms, manner }
}

/// A sequence: a stretch of a move that goes well, which drawing alone would seldom come far along;
/// often one that has changed hands, skips a step or fails one; then whatever happens. Of ten
/// sequences so many begin with a move.
pub(super) fn steps(moves: u32) -> impl Strategy<Value = Vec<Step>> {
    let turn = prop_oneof![
        2 => Just(&[][..]),
        1 => Just(&[(Kind::Adopt, 2, true), (Kind::Publish, 2, true)][..]),
        1 => Just(&[(Kind::Publish, 1, true)][..]),
        1 => Just(&[(Kind::Validate, 1, false), (Kind::Publish, 1, true)][..]),
    ];
    let begun = (0_usize..6, turn).prop_map(|(well, turn)| {
        let mut steps: Vec<_> = (0..well).map(|_| smooth(None, 1, true)).collect();
        steps.extend(turn.iter().map(|&(kind, by, good)| smooth(Some(kind), by, good)));
        steps
    });
    let begun = prop_oneof![10 - moves => Just(Vec::new()), moves => begun];
    (begun, prop::collection::vec(step(), 20..80)).prop_map(|(mut begun, rest)| {
        begun.extend(rest);
        begun
    })
}

fn step() -> impl Strategy<Value = Step> {
    let again = (0_usize..6, prop::bool::weighted(0.1), manner())
        .prop_map(|(back, altered, manner)| Step::Again { back, altered, manner });
    prop_oneof![
        24 => command(),
        8 => again,
        14 => session(),
        16 => target(),
        4 => engine(),
        2 => Just(Step::Settle),
        2 => Just(Step::Restart),
        2 => spoil().prop_map(Step::Spoil),
    ]
}
