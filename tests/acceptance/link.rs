//! A wire between the proxy and its engine that a test can cut.
//!
//! Purpose: what the proxy sees when its link to a backend breaks, while the backend itself lives
//! on: the question of acceptance 9. Every connection is copied by two threads; a session's is
//! found by a text in its startup packet.
//!
//! Who uses it: `tests/fence_pg.rs`, `tests/arms_pg.rs`. It knows nothing of the protocol beyond
//! the first bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::poll;

/// One connection that is being copied.
struct Copied {
    first: Vec<u8>,
    /// Towards the proxy.
    proxy: TcpStream,
    /// Towards the engine.
    engine: TcpStream,
    /// Answers are thrown away instead of copied.
    mute: Arc<Mutex<bool>>,
    /// What the proxy sends is kept here instead of copied.
    held: Arc<Mutex<Option<Vec<u8>>>>,
}

/// A listener whose connections all lead to one server.
pub struct Link {
    port: u16,
    copied: Arc<Mutex<Vec<Copied>>>,
}

impl Link {
    /// Leads to `server` on 127.0.0.1.
    pub fn to(server: u16) -> Self {
        Self::leading(server, false)
    }

    /// The same for a server that speaks first, as MySQL does: a session's mark is in the first
    /// bytes of its *client*, behind the greeting.
    pub fn to_greeter(server: u16) -> Self {
        Self::leading(server, true)
    }

    fn leading(server: u16, greets: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let copied = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&copied);
        std::thread::spawn(move || {
            for accepted in listener.incoming() {
                let Ok(proxy) = accepted else { return };
                let list = Arc::clone(&list);
                std::thread::spawn(move || copy(proxy, server, greets, &list));
            }
        });
        Self { port, copied }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on the engine's answers on connections with `mark` in their startup packet are
    /// lost; what the proxy sends still arrives.
    pub fn mute(&self, mark: &str) {
        self.each(mark, |one| *one.mute.lock().unwrap() = true);
    }

    /// From now on what the proxy sends on connections with `mark` is kept back.
    pub fn hold(&self, mark: &str) {
        self.each(mark, |one| *one.held.lock().unwrap() = Some(Vec::new()));
    }

    /// Waits until something is kept back.
    pub fn wait_held(&self, mark: &str, limit: Duration) {
        let some = |one: &Copied| one.held.lock().unwrap().as_ref().is_some_and(|b| !b.is_empty());
        let seen = poll(limit, || {
            let any = std::cell::Cell::new(false);
            self.each(mark, |one| any.set(any.get() || some(one)));
            any.get().then_some(())
        });
        assert!(seen.is_some(), "nothing was sent within {limit:?}");
    }

    /// Gives the backend what was kept back, whether the proxy is still there or not.
    pub fn deliver(&self, mark: &str) {
        self.each(mark, |one| {
            let held = one.held.lock().unwrap().take().unwrap_or_default();
            (&one.engine).write_all(&held).unwrap();
        });
    }

    /// Breaks the link on the proxy's side only: the backend's socket stays open.
    pub fn cut_proxy(&self, mark: &str) {
        self.each(mark, |one| drop(one.proxy.shutdown(Shutdown::Both)));
    }

    /// Closes the backend's socket.
    pub fn cut_engine(&self, mark: &str) {
        self.each(mark, |one| drop(one.engine.shutdown(Shutdown::Both)));
    }

    fn each(&self, mark: &str, act: impl Fn(&Copied)) {
        let copied = self.copied.lock().unwrap();
        let mark = mark.as_bytes();
        let found = copied.iter().filter(|c| c.first.windows(mark.len()).any(|w| w == mark));
        assert!(found.map(act).count() > 0, "no connection of {mark:?}");
    }
}

fn copy(mut proxy: TcpStream, server: u16, greets: bool, list: &Mutex<Vec<Copied>>) {
    let mut first = vec![0; 10_000];
    let connect = || TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server)));
    let early = greets.then(connect);
    if let Some(engine) = &early {
        let Ok(mut engine) = engine.as_ref() else { return };
        let Ok(length) = engine.read(&mut first) else { return };
        if proxy.write_all(&first[..length]).is_err() {
            return;
        }
    }
    let Ok(length) = proxy.read(&mut first) else { return };
    first.truncate(length);
    let Ok(mut engine) = early.unwrap_or_else(connect) else { return };
    let mute = Arc::new(Mutex::new(false));
    let held = Arc::new(Mutex::new(None::<Vec<u8>>));
    list.lock().unwrap().push(Copied {
        first: first.clone(),
        proxy: proxy.try_clone().unwrap(),
        engine: engine.try_clone().unwrap(),
        mute: Arc::clone(&mute),
        held: Arc::clone(&held),
    });
    if engine.write_all(&first).is_err() {
        return;
    }
    let (mut answers, mut back) = (engine.try_clone().unwrap(), proxy.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut chunk = vec![0; 1 << 16];
        while let Ok(n) = answers.read(&mut chunk) {
            if n == 0 {
                break;
            }
            // What can't be delivered is lost, like what is muted: the engine isn't told.
            if !*mute.lock().unwrap() {
                drop(back.write_all(&chunk[..n]));
            }
        }
        drop(back.shutdown(Shutdown::Write));
    });
    let mut chunk = vec![0; 1 << 16];
    while let Ok(n) = proxy.read(&mut chunk) {
        if n == 0 {
            // The end of the proxy's side isn't passed on: `cut_engine` does that.
            return;
        }
        let mut held = held.lock().unwrap();
        if let Some(held) = &mut *held {
            held.extend_from_slice(&chunk[..n]);
        } else if engine.write_all(&chunk[..n]).is_err() {
            return;
        }
    }
}
