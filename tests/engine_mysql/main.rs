//! Control connections against real MariaDB and MySQL 9 servers; each test runs on both.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

/// Each named test on either server, by the server's name.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod mariadb {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::support::MyFlavour::MariaDb).await;
                }
            )*
        }
        mod mysql {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::support::MyFlavour::MySql).await;
                }
            )*
        }
    };
}

mod boundary;
mod census;
mod connect;
mod lock;
mod prepared;
mod site;
