//! Taking up a changed configuration while sessions run.
//!
//! Purpose: `SIGHUP` and `POST /v1/reload` (conf.md): all of it or nothing, with a sentence for
//! each change or for each reason why not. Running sessions stay where they are.

use std::sync::{Arc, Mutex};

use crate::admin::http::{Reload, ReloadFuture};
use crate::app::control_engine::ControlEngine;
use crate::app::{build, locked};
use crate::config::{Changes, Config, ListenAddress};
use crate::control::Control;
use crate::tls::ReloadingServerTls;

/// What a reload changes.
pub(super) struct Reloading {
    pub(super) config: Arc<Mutex<Config>>,
    pub(super) control: Arc<Control>,
    pub(super) directory: Arc<build::WireDirectory>,
    pub(super) certificates: Vec<(ListenAddress, Arc<ReloadingServerTls>)>,
    /// Held from reading the file to the end of applying it, so that a signal and a request that
    /// come together don't undo each other. Synchronous, never across an await.
    pub(super) turn: Mutex<()>,
}

impl Reloading {
    /// Reads the file again and takes up what differs.
    pub(super) fn reload(&self) -> Result<Vec<String>, Vec<String>> {
        let _turn = locked(&self.turn);
        let Some(source) = locked(&self.config).source.clone() else {
            return Err(vec![
                "There is no configuration file to read again: the proxy was started from the \
                 command line."
                    .to_owned(),
            ]);
        };
        let next = Config::from_file(&source).map_err(|error| vec![error.to_string()])?;
        let changes = Config::live_difference(&locked(&self.config), &next)
            .map_err(|all| all.into_iter().map(|one| one.sentence).collect::<Vec<_>>())?;
        self.apply(next, &changes).map_err(|reason| vec![reason])?;
        Ok(changes.sentences())
    }

    fn apply(&self, next: Config, changes: &Changes) -> Result<(), String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let mut endpoints = (**self.directory.endpoints.load()).clone();
        let mut engines = self.control.engines();
        for engine in next.engines.iter().filter(|e| changes.engines_added.contains(&e.name)) {
            endpoints.add(engine).map_err(|e| text(&e))?;
            let control = ControlEngine::new(&next, engine).map_err(|e| text(&e))?;
            engines.insert(engine.name.clone(), control.port());
        }
        let mut certificates = Vec::new();
        for (address, certificate) in &self.certificates {
            if changes.certificates.contains(address) {
                certificates.push((certificate, certificate.read().map_err(|e| text(&e))?));
            }
        }
        // From here on nothing can fail.
        for (certificate, next) in certificates {
            certificate.replace(next);
        }
        // Control first: a new engine's gates may have to start closed.
        self.control.replace_engines(engines);
        self.directory.endpoints.store(Arc::new(endpoints));
        self.control.replace_routes(build::route_table(&next));
        *locked(&self.config) = next;
        Ok(())
    }
}

impl Reload for Reloading {
    fn reload(&self) -> ReloadFuture<'_> {
        Box::pin(async move { Reloading::reload(self) })
    }
}
