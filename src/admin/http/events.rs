//! The live feed behind the status page: server-sent events.
//!
//! Purpose: whoever watches sees a change within about half a second, and nobody looks while
//! nobody watches. One task makes one text for all listeners; it wakes on changes
//! (`telemetry/changes.rs`), at most once in `limits::EVENTS_PAUSE_MS`, and looks by itself each
//! `limits::EVENTS_LOOK_MS` for what nobody announces (sessions, what is held). A listener that is
//! behind gets the newest text and misses older ones: nothing queues. There are at most
//! `limits::EVENT_LISTENERS_MAX`; one that takes nothing at all is dropped with its connection
//! (`accept.rs`).
//!
//! Callers: `routes.rs` (listeners), `mod.rs` (the task and its end). Reads only.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Response, header};
use hyper::body::Frame;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::AdminApi;
use super::refusal::{plain, text_answer};
use crate::admin::view;
use crate::base::limits;
use crate::telemetry::changes::Changes;

/// What listeners are to be sent.
#[derive(Debug, Clone, Default)]
struct Latest {
    text: Bytes,
    /// The proxy stops; listeners end.
    over: bool,
}

/// The feed and its listeners.
#[derive(Debug)]
pub struct Events {
    latest: watch::Sender<Latest>,
    /// Somebody has come and waits for a first text.
    came: Notify,
    room: Arc<Semaphore>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            latest: watch::Sender::default(),
            came: Notify::new(),
            room: Arc::new(Semaphore::new(limits::EVENT_LISTENERS_MAX)),
        }
    }
}

impl Events {
    /// Makes the text for all listeners, for as long as it is polled.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped, listeners get nothing new.
    pub(super) async fn feed(&self, changes: &Changes, look: impl Fn() -> String) {
        let pause = Duration::from_millis(limits::EVENTS_PAUSE_MS);
        let by_itself = Duration::from_millis(limits::EVENTS_LOOK_MS);
        loop {
            let mut newcomer = false;
            if self.latest.receiver_count() == 0 {
                self.came.notified().await;
                newcomer = true;
            } else {
                tokio::select! {
                    () = changes.next() => {}
                    () = self.came.notified() => newcomer = true,
                    () = tokio::time::sleep(by_itself) => {}
                }
            }
            let text = Bytes::from(format!("event: status\ndata: {}\n\n", look()));
            self.latest.send_if_modified(|latest| {
                let tell = newcomer || latest.text != text;
                latest.text = text;
                tell
            });
            tokio::time::sleep(pause).await;
        }
    }

    /// Ends all listeners, for the proxy's own end.
    pub(super) fn end(&self) {
        self.latest.send_replace(Latest { text: Bytes::new(), over: true });
    }
}

type Step = Pin<Box<dyn Future<Output = (watch::Receiver<Latest>, Option<Bytes>)> + Send>>;

/// The next thing for one listener: a text, a sign of life, or the end.
async fn step(mut latest: watch::Receiver<Latest>) -> (watch::Receiver<Latest>, Option<Bytes>) {
    let quiet = Duration::from_millis(limits::EVENTS_QUIET_MS);
    let next = match tokio::time::timeout(quiet, latest.changed()).await {
        Ok(Ok(())) => {
            let latest = latest.borrow_and_update();
            (!latest.over).then(|| latest.text.clone())
        }
        Ok(Err(_)) => None,
        // A comment: it shows either side that the other is there.
        Err(_) => Some(Bytes::from_static(b": nothing new\n\n")),
    };
    (latest, next)
}

/// One listener's body. Its place is free again when it is dropped.
struct Listener {
    next: Option<Step>,
    _place: OwnedSemaphorePermit,
}

impl hyper::body::Body for Listener {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let (latest, text) = ready!(next.as_mut().poll(cx));
        self.next = text.is_some().then(|| Box::pin(step(latest)) as Step);
        Poll::Ready(text.map(|text| Ok(Frame::data(text))))
    }
}

/// What listeners are shown.
pub(super) fn status(api: &AdminApi) -> String {
    let control = &api.control;
    let mut lines = control.namespaces();
    // Those with a fence first; the order by name stays among equals.
    lines.sort_by_key(|line| !line.state.is_active());
    let more = lines.len().saturating_sub(limits::EVENTS_NAMESPACES_MAX);
    lines.truncate(limits::EVENTS_NAMESPACES_MAX);
    let sessions = api.metrics.totals().sessions;
    let denied = api.metrics.fence.denied();
    view::status(&lines, more, &denied, sessions, &control.capabilities(), api.shown).to_string()
}

/// `GET /v1/events`.
pub(super) async fn events(State(api): State<Arc<AdminApi>>) -> Response<Body> {
    let Ok(place) = Arc::clone(&api.events.room).try_acquire_owned() else {
        let most = limits::EVENT_LISTENERS_MAX;
        return plain(503, &format!("{most} status pages are open, and more aren't served"));
    };
    let latest = api.events.latest.subscribe();
    api.events.came.notify_one();
    let body = Listener { next: Some(Box::pin(step(latest))), _place: place };
    let mut answer = text_answer(200, "text/event-stream", String::new());
    *answer.body_mut() = Body::new(body);
    let headers = answer.headers_mut();
    headers.insert(
        header::HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::telemetry::spawn::spawn_named;

    /// However often things change, texts are half a second apart; and nobody looks for nobody.
    #[tokio::test]
    async fn texts_are_apart_and_made_for_listeners_only() {
        let (events, changes) = (Arc::new(Events::default()), Arc::new(Changes::default()));
        let looks = Arc::new(AtomicU32::new(0));
        let (feeding, stirred, counted) =
            (Arc::clone(&events), Arc::clone(&changes), Arc::clone(&looks));
        let feed = spawn_named("feed", async move {
            let look = || counted.fetch_add(1, Ordering::SeqCst).to_string();
            feeding.feed(&stirred, look).await;
        });
        for _ in 0..100 {
            changes.stir();
            tokio::task::yield_now().await;
        }
        assert_eq!(looks.load(Ordering::SeqCst), 0, "nobody listens");

        let mut latest = events.latest.subscribe();
        events.came.notify_one();
        let began = std::time::Instant::now();
        for _ in 0..4 {
            let patience = Duration::from_mins(1);
            let next = async {
                loop {
                    changes.stir();
                    let soon = Duration::from_millis(5);
                    if tokio::time::timeout(soon, latest.changed()).await.is_ok() {
                        break;
                    }
                }
            };
            tokio::time::timeout(patience, next).await.unwrap();
            assert!(latest.borrow_and_update().text.starts_with(b"event: status\ndata: "));
        }
        let pause = Duration::from_millis(limits::EVENTS_PAUSE_MS);
        // Between four texts there are three pauses.
        assert!(began.elapsed() >= 3 * pause, "{:?}", began.elapsed());
        feed.abort();
    }

    #[tokio::test]
    async fn a_listener_that_is_behind_gets_the_newest_and_then_the_end() {
        let events = Events::default();
        let latest = events.latest.subscribe();
        for text in ["one", "two", "three"] {
            events.latest.send_replace(Latest { text: Bytes::from(text), over: false });
        }
        let (latest, text) = step(latest).await;
        assert_eq!(text.unwrap(), "three");
        events.end();
        assert!(step(latest).await.1.is_none());
    }
}
