//! The bank's clients: what an application does, over the wire and through the proxy.
//!
//! Purpose: writers move money in four statements between BEGIN and COMMIT, every second one with
//! prepared statements and the others with plain queries; readers add up all balances; one slow
//! client keeps a transaction open until it is told to commit. Each records what it was told.
//!
//! Invariant: every wait for an answer is bounded; an answer that doesn't come is recorded as lost.
//! Clients don't retry a transfer: a refused one is given up, and the next one has a new number.
//!
//! Called by `play.rs`. It judges nothing.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::bank::{ACCOUNTS, SUM, VAULTS, sum_for};
use super::history::{Attempt, End, Read, Recorder};
use super::link::{Link, LinkError, Login, Prepared};

/// How long a client waits for any answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Pause between two transfers of one client.
const PACE: Duration = Duration::from_millis(10);
/// Pause after a refusal: an application that is told no doesn't hammer.
const BACK_OFF: Duration = Duration::from_millis(60);
/// Numbers of transfers that each client has to itself.
const NUMBERS_PER_CLIENT: i64 = 1_000_000;
/// The client number under which the slow transaction is recorded.
pub(super) const SLOW: usize = usize::MAX;
/// The application name of the slow client.
pub(super) const SLOW_NAME: &str = "slow batch";
/// The slow client's transfer.
pub(super) const SLOW_TRANSFER: i64 = 900_000_001;

/// What one transfer does.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    id: i64,
    from: i64,
    to: i64,
    amount: i64,
}

impl Transfer {
    /// The two balances to change, lower account first, so that clients never deadlock.
    fn changes(&self) -> [(i64, i64); 2] {
        let changes = [(self.from, -self.amount), (self.to, self.amount)];
        if self.from < self.to { changes } else { [changes[1], changes[0]] }
    }
}

/// How a client says it.
enum Form {
    Simple,
    Prepared { update: Prepared, insert: Prepared },
}

impl Form {
    async fn of(number: usize, client: &mut Link) -> Result<Self, LinkError> {
        if number.is_multiple_of(2) {
            return Ok(Self::Simple);
        }
        let update = client
            .prepare(
                "UPDATE accounts SET balance = balance + $1 WHERE id = $2",
                "UPDATE accounts SET balance = balance + ? WHERE id = ?",
            )
            .await?;
        let insert = client
            .prepare(
                "INSERT INTO transfers VALUES ($1, $2, $3, $4)",
                "INSERT INTO transfers VALUES (?, ?, ?, ?)",
            )
            .await?;
        Ok(Self::Prepared { update, insert })
    }

    /// Everything between BEGIN and COMMIT.
    async fn write(&self, client: &mut Link, transfer: &Transfer) -> Result<(), LinkError> {
        let Transfer { id, from, to, amount } = transfer;
        for (account, change) in transfer.changes() {
            match self {
                Self::Simple => {
                    let sql = format!(
                        "UPDATE accounts SET balance = balance + {change} WHERE id = {account}"
                    );
                    client.run(&sql).await?;
                }
                Self::Prepared { update, .. } => {
                    client.execute(update, &[change, account]).await?;
                }
            }
        }
        match self {
            Self::Simple => {
                let sql = format!("INSERT INTO transfers VALUES ({id}, {from}, {to}, {amount})");
                client.run(&sql).await
            }
            Self::Prepared { insert, .. } => {
                client.execute(insert, &[*id, *from, *to, *amount]).await
            }
        }
    }
}

/// Waits for an answer, at most [`ANSWER_MAX`].
async fn answered<T>(ask: impl Future<Output = Result<T, LinkError>>) -> Result<T, End> {
    match tokio::time::timeout(ANSWER_MAX, ask).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(end_of(error)),
        Err(_) => Err(End::Lost(format!("no answer within {} s", ANSWER_MAX.as_secs()))),
    }
}

fn end_of(error: LinkError) -> End {
    /// The standard's "transaction resolution unknown".
    const UNKNOWN: &str = "08007";
    match error.code {
        Some(code) if code != UNKNOWN => End::Refused(code),
        Some(_) | None => End::Lost(error.words),
    }
}

/// Runs one transfer to its end, records that, and answers it.
async fn attempt(
    number: usize,
    client: &mut Link,
    form: &Form,
    transfer: &Transfer,
    recorder: &Recorder,
) -> End {
    let began = recorder.now();
    let mut committing = None;
    let work = async {
        answered(client.run("BEGIN")).await?;
        answered(form.write(client, transfer)).await?;
        committing = Some(recorder.now());
        answered(client.run("COMMIT")).await
    };
    let end = work.await.err().unwrap_or(End::Acknowledged);
    let ended = recorder.now();
    let record = Attempt {
        client: number,
        transfer: transfer.id,
        began,
        committing,
        ended,
        end: end.clone(),
    };
    recorder.attempt(record);
    end
}

/// One writing client, until it is told to stop or its connection is of no use any more.
pub(super) async fn writer(number: usize, login: Login, recorder: Arc<Recorder>) {
    let first = i64::try_from(number).unwrap_or(0) * NUMBERS_PER_CLIENT;
    let lost = |how: String| {
        let now = recorder.now();
        let end = End::Lost(format!("it never got to work: {how}"));
        let transfer = first;
        let record =
            Attempt { client: number, transfer, began: now, committing: None, ended: now, end };
        recorder.attempt(record);
    };
    let mut client = match Link::open(&login).await {
        Ok(client) => client,
        Err(error) => return lost(error.words),
    };
    let form = match Form::of(number, &mut client).await {
        Ok(form) => form,
        Err(error) => return lost(error.words),
    };
    let mut dice = Dice::new(number);
    for id in first + 1..first + NUMBERS_PER_CLIENT {
        if recorder.is_stopping() {
            return;
        }
        let from = dice.up_to(ACCOUNTS);
        // Another account than `from`.
        let to = (from - 1 + dice.up_to(ACCOUNTS - 1)) % ACCOUNTS + 1;
        let transfer = Transfer { id, from, to, amount: dice.up_to(20) };
        let pause = match attempt(number, &mut client, &form, &transfer, &recorder).await {
            End::Acknowledged => PACE,
            End::Refused(_) => {
                if answered(client.run("ROLLBACK")).await.is_err() {
                    return lost("its ROLLBACK failed".to_owned());
                }
                BACK_OFF
            }
            End::Lost(_) => return,
        };
        tokio::time::sleep(pause).await;
    }
}

/// One reading client, until it is told to stop or its connection is of no use any more.
pub(super) async fn reader(number: usize, login: Login, recorder: Arc<Recorder>) {
    let record = |began, outcome| {
        recorder.read(Read { began, ended: recorder.now(), outcome });
    };
    let mut client = match Link::open(&login).await {
        Ok(client) => client,
        Err(error) => return record(recorder.now(), Err(error.words)),
    };
    let prepared =
        if number.is_multiple_of(2) { None } else { client.prepare(SUM[0], SUM[1]).await.ok() };
    let sum = sum_for(client.kind());
    while !recorder.is_stopping() {
        let began = recorder.now();
        let ask = async {
            match &prepared {
                Some(statement) => client.number_of(statement).await,
                None => client.number(sum).await,
            }
        };
        let outcome = answered(ask).await;
        let usable = !matches!(outcome, Err(End::Lost(_)));
        record(
            began,
            outcome.map_err(|end| match end {
                End::Acknowledged => "no sum".to_owned(),
                End::Refused(code) => code,
                End::Lost(how) => how,
            }),
        );
        if !usable {
            return;
        }
        tokio::time::sleep(PACE).await;
    }
}

/// A transaction that has written and is kept open.
pub(super) struct SlowTransaction {
    client: Link,
    began: Duration,
    ended: Option<Attempt>,
}

impl SlowTransaction {
    /// Begins it, writes, and leaves it open.
    pub(super) async fn open(login: &Login, recorder: &Recorder) -> Result<Self, LinkError> {
        let mut client = Link::open(login).await?;
        let began = recorder.now();
        let [from, to] = VAULTS;
        client.run("BEGIN").await?;
        let transfer = Transfer { id: SLOW_TRANSFER, from, to, amount: 500 };
        Form::Simple.write(&mut client, &transfer).await?;
        Ok(Self { client, began, ended: None })
    }

    /// Commits it, the first time, and says how that ended for its client.
    pub(super) async fn commit(&mut self, recorder: &Recorder) -> Attempt {
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        let committing = recorder.now();
        let end = answered(self.client.run("COMMIT")).await;
        let attempt = Attempt {
            client: SLOW,
            transfer: SLOW_TRANSFER,
            began: self.began,
            committing: Some(committing),
            ended: recorder.now(),
            end: end.err().unwrap_or(End::Acknowledged),
        };
        self.ended.insert(attempt).clone()
    }

    /// Whether it has not been told to commit.
    pub(super) const fn is_open(&self) -> bool {
        self.ended.is_none()
    }
}

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn new(seed: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (seed as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// From 1 to `most`.
    fn up_to(&mut self, most: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let most = u64::try_from(most).unwrap_or(1).max(1);
        i64::try_from(self.0 % most).unwrap_or(0) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_have_two_accounts_and_lock_the_lower_first() {
        let mut dice = Dice::new(3);
        for _ in 0..1_000 {
            let from = dice.up_to(ACCOUNTS);
            let to = (from - 1 + dice.up_to(ACCOUNTS - 1)) % ACCOUNTS + 1;
            assert!(from != to && (1..=ACCOUNTS).contains(&from) && (1..=ACCOUNTS).contains(&to));
            let amount = dice.up_to(20);
            let [first, second] = (Transfer { id: 1, from, to, amount }).changes();
            assert!(first.0 < second.0 && first.1 + second.1 == 0 && first.1 != 0);
        }
    }
}
