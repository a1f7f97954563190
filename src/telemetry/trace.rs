//! Log lines: the process-wide tracing subscriber, written to stderr.
//!
//! Purpose: one call at start decides level and format. Called by the program's composition, once,
//! before anything else runs; `config` uses [`check_filter`] to refuse a bad filter with its line.
//! It does not rotate files and writes nothing to stdout, which belongs to command results.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One readable line per event.
    Text,
    /// One JSON object per line, with the event's fields flattened into it.
    Json,
}

/// What the subscriber is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// A tracing filter such as `info` or `info,fencewire::gate=debug`; `RUST_LOG` overrides it.
    pub filter: String,
    /// The shape of the lines.
    pub format: Format,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The filter text is not one.
    #[error(
        "log filter {filter:?} can't be read ({reason}); write a level such as \"info\", or \
         \"info,fencewire::gate=debug\""
    )]
    BadFilter {
        /// The text as given.
        filter: String,
        /// What the parser disliked.
        reason: String,
    },
    /// A subscriber is installed already.
    #[error("logging is set up already; it can be set up once per process")]
    AlreadySet,
}

/// Says whether `filter` can be used, without installing anything.
///
/// # Errors
/// [`TraceError::BadFilter`] when it can't.
pub fn check_filter(filter: &str) -> Result<(), TraceError> {
    parse_filter(filter).map(|_| ())
}

fn parse_filter(filter: &str) -> Result<EnvFilter, TraceError> {
    // Audit events pass whatever the level is, unless the filter speaks about them itself.
    let with_audit = if filter.contains(super::audit::TARGET) {
        filter.to_owned()
    } else {
        format!("{filter},{}=info", super::audit::TARGET)
    };
    EnvFilter::builder().parse(with_audit).map_err(|error| TraceError::BadFilter {
        filter: filter.chars().take(200).collect(),
        reason: error.to_string(),
    })
}

/// Installs the process-wide subscriber, writing to stderr.
///
/// # Errors
/// [`TraceError::BadFilter`] for a bad filter (`RUST_LOG` included), [`TraceError::AlreadySet`] on
/// a second call.
pub fn init(settings: &Settings) -> Result<(), TraceError> {
    let overriding = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = parse_filter(overriding.as_deref().unwrap_or(&settings.filter))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let builder = builder.with_ansi(std::io::stderr().is_terminal());
    let installed = match settings.format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|_| TraceError::AlreadySet)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex, Once};

    use tracing::Metadata;
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::Interest;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// Collects this thread's log lines as JSON text.
    #[derive(Clone, Default)]
    pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

    /// What every other thread of the tests has: it takes nothing, and wants to be asked each time.
    ///
    /// A callsite that is met first on a thread without a subscriber is switched off for all of
    /// them, though another thread captures just then: tracing asks only the thread's own while
    /// there is no second one.
    struct Asked;

    impl tracing::Subscriber for Asked {
        fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
            Interest::sometimes()
        }

        fn enabled(&self, _: &Metadata<'_>) -> bool {
            false
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &tracing::Event<'_>) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    impl Captured {
        pub(crate) fn install(&self) -> tracing::subscriber::DefaultGuard {
            static ELSEWHERE: Once = Once::new();
            ELSEWHERE.call_once(|| tracing::subscriber::set_global_default(Asked).unwrap());
            let subscriber = tracing_subscriber::fmt()
                .json()
                .flatten_event(true)
                .with_writer(self.clone())
                .with_max_level(tracing::Level::TRACE)
                .finish();
            tracing::subscriber::set_default(subscriber)
        }

        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Captured {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_quiet_filter_does_not_silence_the_audit() {
        assert!(
            parse_filter("error").unwrap().to_string().contains("fencewire::fence::audit=info")
        );
        let own = parse_filter("info,fencewire::fence::audit=off").unwrap().to_string();
        assert!(!own.contains("audit=info"), "{own}");
    }

    #[test]
    fn filters_are_checked() {
        check_filter("info,fencewire::gate=debug").unwrap();
        let text = check_filter("fencewire=loudly").unwrap_err().to_string();
        assert!(text.contains("fencewire=loudly") && text.contains("write a level"), "{text}");
    }
}
