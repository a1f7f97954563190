//! The command line tools of MariaDB and MySQL pointed at a server: directly, or through the proxy.

use std::ffi::OsStr;
use std::process::Command;

use super::certs::ca;
use super::my_cluster::{MyCluster, MyFlavour, client_program, dump_program};
use super::talk::Language;

/// Where a tool connects to. The account is `app`, with its password.
#[derive(Clone, Copy)]
pub struct MyTarget<'a> {
    /// The engine.
    pub cluster: &'a MyCluster,
    /// The port that the tools connect to, on 127.0.0.1.
    pub port: u16,
    /// The client's side: TLS with the server's certificate checked, else none.
    pub client_tls: bool,
    /// Whether the engine must see TLS on its side.
    pub engine_tls: bool,
}

impl MyTarget<'_> {
    /// A command with the password in its environment, where both flavours' tools look for it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"MYSQL") {
                command.env_remove(name);
            }
        }
        command.env("MYSQL_PWD", "app");
        command
    }

    /// What every tool of a flavour is told: no option files, where to, and which encryption.
    ///
    /// The tools of one flavour may talk to a server of the other.
    fn connection(&self, tools: MyFlavour) -> Vec<String> {
        let mut options: Vec<String> =
            ["--no-defaults", "--protocol=TCP", "--host=127.0.0.1", "--user=app"]
                .map(String::from)
                .to_vec();
        options.push(format!("--port={}", self.port));
        let ca = || format!("--ssl-ca={}", ca().display());
        match (tools, self.client_tls) {
            (MyFlavour::MariaDb, true) => {
                options.extend(["--ssl-verify-server-cert".to_owned(), ca()]);
            }
            (MyFlavour::MariaDb, false) => options.push("--skip-ssl".to_owned()),
            (MyFlavour::MySql, true) => {
                options.extend(["--ssl-mode=VERIFY_IDENTITY".to_owned(), ca()]);
            }
            (MyFlavour::MySql, false) => {
                options.push("--ssl-mode=DISABLED".to_owned());
                options.push("--get-server-public-key".to_owned());
            }
        }
        options
    }

    /// The command line client of a flavour, for scripts: tabs between columns, no names of them.
    pub fn client(&self, tools: MyFlavour, db: &str) -> Command {
        let mut command = self.command(client_program(tools));
        command.args(self.connection(tools)).args(["--batch", "--skip-column-names"]);
        if tools == MyFlavour::MySql {
            // Its own words, such as `status`, are off in scripts unless asked for.
            command.arg("--commands");
        }
        command.args(["--default-character-set=utf8mb4", db]);
        command
    }

    /// The command line client of the server's own flavour.
    pub fn mysql(&self, db: &str) -> Command {
        self.client(self.cluster.flavour(), db)
    }

    /// `mariadb-dump` or `mysqldump`, whichever is the server's own, without a database.
    pub fn dump(&self) -> Command {
        let tools = self.cluster.flavour();
        let mut command = self.command(dump_program(tools));
        command.args(self.connection(tools)).arg("--default-character-set=utf8mb4");
        command
    }

    /// A program beside the server's own client, such as `mysqladmin`.
    pub fn tool(&self, program: &str) -> Command {
        let tools = self.cluster.flavour();
        let mut command = self.command(client_program(tools).with_file_name(program));
        command.args(self.connection(tools));
        command
    }

    /// A driver's script of `tests/drivers/`, to be run in one of its ways.
    pub fn script(&self, language: Language, db: &str, file: &str, way: &str) -> Command {
        let mut command = self.command(language.program());
        language.script(&mut command, file, way);
        command.env("FENCEWIRE_MY_FLAVOUR", self.cluster.flavour().name());
        command.env("FENCEWIRE_MY_PORT", self.port.to_string()).env("FENCEWIRE_MY_DB", db);
        command.env_remove("FENCEWIRE_MY_CA");
        if self.client_tls {
            command.env("FENCEWIRE_MY_CA", ca());
        }
        command
    }

    /// sysbench with one of its own tests and the target's account.
    pub fn sysbench(&self, test: &str, db: &str) -> Command {
        let mut command = self.command("sysbench");
        command.args([test, "--db-driver=mysql", "--mysql-host=127.0.0.1", "--mysql-user=app"]);
        command.args(["--mysql-password=app", "--verbosity=3"]);
        command.arg(format!("--mysql-port={}", self.port)).arg(format!("--mysql-db={db}"));
        if self.client_tls {
            command.arg("--mysql-ssl=on");
        }
        command
    }
}
