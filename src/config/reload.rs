//! What of a new configuration can be taken up while sessions run.
//!
//! Purpose: compares the running configuration with a new one and says, in sentences, either what
//! will change or why it can't without a restart. Called by `app` on `SIGHUP` and on a reload
//! request. It changes nothing itself. Anything not known to be safe live counts as a restart.

use std::path::PathBuf;

use super::checked::{Config, Engine, Listen, ListenAddress, Route};
use crate::base::ids::{EngineName, Namespace};

/// Changes that can be taken up live. Empty means that nothing differs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Routes that are new or lead elsewhere. A durable route switched by command wins over these.
    pub routes_set: Vec<Route>,
    /// Routes that are no longer written; running sessions stay.
    pub routes_removed: Vec<String>,
    /// Engines that are new.
    pub engines_added: Vec<EngineName>,
    /// Listeners whose certificate files are to be read (again): their paths changed, or the files
    /// may have been renewed in place.
    pub certificates: Vec<ListenAddress>,
    /// Whether the default fence settings differ.
    pub fence_defaults: bool,
    /// Namespaces whose own fence settings differ, appeared or went.
    pub namespaces: Vec<Namespace>,
}

/// One difference that needs a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedsRestart {
    /// The key.
    pub key: String,
    /// A sentence that says what to do.
    pub sentence: String,
}

impl Changes {
    /// Each change as a sentence, for the log and the answer of a reload.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        for route in &self.routes_set {
            all.push(format!("Route \"{}\" leads to {}.", route.name, route.namespace));
        }
        for name in &self.routes_removed {
            all.push(format!("Route \"{name}\" is gone; sessions that came by it stay."));
        }
        for engine in &self.engines_added {
            all.push(format!("Engine {engine} is added."));
        }
        for address in &self.certificates {
            all.push(format!("Listener {address} reads its certificate files again."));
        }
        if self.fence_defaults {
            all.push("The defaults in [fence] change for commands from now on.".to_owned());
        }
        for namespace in &self.namespaces {
            all.push(format!("The fence settings of {namespace} change."));
        }
        all
    }
}

fn restart(key: &str, what: &str) -> NeedsRestart {
    let sentence = format!(
        "{what} can't change while the proxy runs; restart it, or take the change back and reload."
    );
    NeedsRestart { key: key.to_owned(), sentence }
}

impl Config {
    /// What differs, as changes that can be taken up now.
    ///
    /// # Errors
    /// Every difference that needs a restart; then nothing is to be taken up.
    pub fn live_difference(old: &Self, new: &Self) -> Result<Changes, Vec<NeedsRestart>> {
        let mut refused = Vec::new();
        if old.proxy != new.proxy {
            refused.push(restart("proxy", "A value in [proxy]"));
        }
        if old.log != new.log {
            refused.push(restart("log", "A value in [log]"));
        }
        if old.store != new.store {
            refused.push(restart("store", "The store"));
        }
        if old.admin != new.admin {
            refused.push(restart("admin", "A value in [admin]"));
        }
        if old.compat_sqlstate != new.compat_sqlstate {
            refused.push(restart("compat", "The table [compat.sqlstate]"));
        }
        let enabled = |config: &Self| config.fence.enabled;
        if enabled(old) != enabled(new) {
            refused.push(restart("fence.enabled", "Whether fences can be commanded"));
        }
        if old.fence.trusted_functions != new.fence.trusted_functions {
            refused.push(restart("fence.trusted_functions", "Which functions are trusted"));
        }
        let mut changes = Changes::default();
        engines(old, new, &mut changes, &mut refused);
        listens(old, new, &mut changes, &mut refused);
        if !refused.is_empty() {
            return Err(refused);
        }
        routes(old, new, &mut changes);
        changes.fence_defaults = old.fence != new.fence;
        let named = old.namespaces.keys().chain(new.namespaces.keys());
        let differs = |ns: &&Namespace| old.namespaces.get(*ns) != new.namespaces.get(*ns);
        changes.namespaces = named.filter(differs).cloned().collect();
        changes.namespaces.sort();
        changes.namespaces.dedup();
        Ok(changes)
    }
}

fn same_engine(old: &Engine, new: &Engine) -> bool {
    let password = |engine: &Engine| engine.password.as_ref().map(|p| p.expose().to_owned());
    old.protocol == new.protocol
        && old.host == new.host
        && old.user == new.user
        && password(old) == password(new)
        && old.database == new.database
        && old.tls == new.tls
        && old.ca_file == new.ca_file
        && old.connect_timeout == new.connect_timeout
}

fn engines(old: &Config, new: &Config, changes: &mut Changes, refused: &mut Vec<NeedsRestart>) {
    for engine in &old.engines {
        match new.engine(&engine.name) {
            Some(now) if same_engine(engine, now) => {}
            Some(_) => {
                let what = format!("Engine {}: its address, login or TLS", engine.name);
                refused.push(restart("engine", &what));
            }
            None => {
                let what = format!("Engine {} is gone from the file, and an engine", engine.name);
                refused.push(restart("engine", &what));
            }
        }
    }
    let added = new.engines.iter().filter(|engine| old.engine(&engine.name).is_none());
    changes.engines_added = added.map(|engine| engine.name.clone()).collect();
}

fn listens(old: &Config, new: &Config, changes: &mut Changes, refused: &mut Vec<NeedsRestart>) {
    let find = |config: &'_ Config, address: &ListenAddress| -> Option<Listen> {
        config.listens.iter().find(|listen| listen.address == *address).cloned()
    };
    for listen in &old.listens {
        let key = "listen";
        let address = &listen.address;
        let Some(now) = find(new, address) else {
            let what = format!("Listener {address} is gone from the file, and a listener");
            refused.push(restart(key, &what));
            continue;
        };
        let client_ca = |listen: &Listen| -> Option<PathBuf> {
            listen.certificate.as_ref().and_then(|cert| cert.client_ca_file.clone())
        };
        let paths_apart = now.protocol == listen.protocol
            && now.default_engine == listen.default_engine
            && now.tls == listen.tls
            && now.auto_prepare == listen.auto_prepare
            && client_ca(&now).is_some() == client_ca(listen).is_some();
        if !paths_apart {
            let what = format!(
                "Listener {address}: its protocol, default engine, TLS level, auto_prepare or \
                 demand for client certificates"
            );
            refused.push(restart(key, &what));
        } else if now.certificate.is_some() {
            changes.certificates.push(address.clone());
        }
    }
    for listen in new.listens.iter().filter(|listen| find(old, &listen.address).is_none()) {
        let what = format!("Listener {} is new, and the set of listeners", listen.address);
        refused.push(restart("listen", &what));
    }
}

fn routes(old: &Config, new: &Config, changes: &mut Changes) {
    let known = |config: &Config, route: &Route| config.routes.contains(route);
    changes.routes_set = new.routes.iter().filter(|route| !known(old, route)).cloned().collect();
    let named = |route: &&Route| !new.routes.iter().any(|now| now.name == route.name);
    changes.routes_removed = old.routes.iter().filter(named).map(|r| r.name.clone()).collect();
}
