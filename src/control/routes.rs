//! Which namespace a client's database name means.
//!
//! Purpose: one table, read at each start-up packet and replaced as a whole by a reload. Routes
//! moved by a command (compare-and-swap, durable) come with moves; until then a route is what the
//! configuration says.
//!
//! Callers: `wire` (resolve), `app` (reload), `control/status.rs` (which routes lead to a
//! namespace). It doesn't know whether a database exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::fences::Control;
use crate::base::ids::{EngineName, Generation, IdError, Namespace};
use crate::gate::slot::{Order, Slot};

/// Why a name leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The name can't be a database's.
    #[error("{0}; connect with a database name that can exist")]
    BadName(#[from] IdError),
    /// The listener's engine isn't in the table: a mistake in putting the parts together.
    #[error("the listener's engine {0} is not configured; see [[engine]] and [[listen]]")]
    NoEngine(EngineName),
}

/// Names to namespaces, and the engines there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// Explicit routes by the name that clients use.
    pub routes: BTreeMap<String, Namespace>,
    /// Every configured engine.
    pub engines: BTreeSet<EngineName>,
}

impl RouteTable {
    /// What `name` means at a listener whose engine is `default_engine`.
    ///
    /// An explicit route first; then `engine/database` where the part before the first slash is a
    /// configured engine; then the database of that name on the default engine.
    ///
    /// # Errors
    /// [`RouteError`].
    pub fn resolve(
        &self,
        default_engine: &EngineName,
        name: &str,
    ) -> Result<Namespace, RouteError> {
        if let Some(namespace) = self.routes.get(name) {
            return Ok(namespace.clone());
        }
        if let Some((engine, database)) = name.split_once('/')
            && let Some(engine) = self.engines.iter().find(|known| known.as_str() == engine)
        {
            return Ok(Namespace::new(engine.clone(), database)?);
        }
        if !self.engines.contains(default_engine) {
            return Err(RouteError::NoEngine(default_engine.clone()));
        }
        Ok(Namespace::new(default_engine.clone(), name)?)
    }

    /// The explicit routes that lead to a namespace.
    #[must_use]
    pub fn leading_to(&self, namespace: &Namespace) -> Vec<String> {
        let routes = self.routes.iter().filter(|(_, target)| *target == namespace);
        routes.map(|(name, _)| name.clone()).collect()
    }
}

/// The table in force.
#[derive(Debug)]
pub struct Routes {
    table: ArcSwap<RouteTable>,
}

impl Routes {
    /// Starts with a table.
    #[must_use]
    pub fn new(table: RouteTable) -> Self {
        Self { table: ArcSwap::from_pointee(table) }
    }

    /// The table as it is now.
    #[must_use]
    pub fn table(&self) -> Arc<RouteTable> {
        self.table.load_full()
    }

    /// Replaces the table; running sessions stay where they are. [`Control::replace_routes`] also
    /// tells them.
    pub fn replace(&self, table: RouteTable) {
        self.table.store(Arc::new(table));
    }

    /// Whether the name that a session came by still means the namespace it is in.
    fn still_leads(&self, slot: &Slot, namespace: &Namespace) -> bool {
        let card = slot.card();
        let Some((engine, name)) = &card.came_by else { return true };
        self.resolve(engine, name).as_ref() == Ok(namespace)
    }

    /// As [`RouteTable::resolve`], on the table in force.
    ///
    /// # Errors
    /// [`RouteError`].
    pub fn resolve(
        &self,
        default_engine: &EngineName,
        name: &str,
    ) -> Result<Namespace, RouteError> {
        self.table.load().resolve(default_engine, name)
    }
}

impl Control {
    /// Replaces the routes. Sessions whose name leads elsewhere now stay where they are, except
    /// for what is held: such a session is ended, so that its client comes back to where the name
    /// leads (wire.md W21).
    pub fn replace_routes(&self, table: RouteTable) {
        self.routes.replace(table);
        for gate in self.gates.all() {
            for slot in gate.sessions() {
                if !self.routes.still_leads(&slot, gate.namespace()) {
                    slot.order(Order::ROUTE_MOVED, Generation(0));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(name: &str) -> EngineName {
        EngineName::new(name).unwrap()
    }

    fn table() -> RouteTable {
        RouteTable {
            routes: BTreeMap::from([("app".to_owned(), Namespace::parse("new/app2").unwrap())]),
            engines: BTreeSet::from([engine("old"), engine("new")]),
        }
    }

    #[test]
    fn a_route_wins_then_an_engine_prefix_then_the_default_engine() {
        let routes = Routes::new(table());
        let resolve = |name: &str| routes.resolve(&engine("old"), name).unwrap().to_string();
        assert_eq!(resolve("app"), "new/app2");
        assert_eq!(resolve("new/app"), "new/app");
        assert_eq!(resolve("other"), "old/other");
        assert_eq!(resolve("who/knows"), "old/who/knows", "no engine of that name: a database");
        assert_eq!(table().leading_to(&Namespace::parse("new/app2").unwrap()), ["app"]);
    }

    #[test]
    fn bad_names_and_unknown_engines_are_typed() {
        let routes = Routes::new(table());
        let bad = |name: &str| routes.resolve(&engine("old"), name).unwrap_err();
        assert!(matches!(bad(""), RouteError::BadName(_)));
        assert!(matches!(bad("new/"), RouteError::BadName(_)));
        let lost = routes.resolve(&engine("gone"), "x").unwrap_err();
        assert_eq!(lost, RouteError::NoEngine(engine("gone")));
    }

    #[test]
    fn a_replaced_table_is_in_force_at_once() {
        let routes = Routes::new(table());
        let mut next = table();
        next.routes.insert("app".to_owned(), Namespace::parse("old/app").unwrap());
        routes.replace(next);
        assert_eq!(routes.resolve(&engine("new"), "app").unwrap().to_string(), "old/app");
    }
}
