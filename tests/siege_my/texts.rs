//! The grammar of texts: what changes something, and what is put around it.

use super::{Dice, cat};
use crate::support::MyFlavour;

/// What a text is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    pub flavour: MyFlavour,
    /// `d` is fenced.
    pub fenced: bool,
    /// The session has nothing open from before the fence.
    pub fresh: bool,
}

/// Makes texts from dice.
pub struct Grammar<'a> {
    pub dice: &'a mut Dice,
    pub setting: Setting,
}

/// How deep texts stand in one another.
const DEPTHS: [usize; 7] = [0, 0, 0, 1, 1, 2, 3];

impl Grammar<'_> {
    fn maria(&self) -> bool {
        self.setting.flavour == MyFlavour::MariaDb
    }

    fn number(&mut self) -> usize {
        self.dice.below(900) + 100
    }

    /// A text of one or more statements.
    pub fn text(&mut self) -> Vec<u8> {
        if self.setting.fenced && self.dice.chance(8) {
            // What only the guard stops.
            return format!("select * from {}", self.view()).into_bytes();
        }
        let depth = self.dice.pick(&DEPTHS);
        self.nested(depth)
    }

    fn nested(&mut self, depth: usize) -> Vec<u8> {
        if depth == 0 {
            return self.statement();
        }
        let inside = self.nested(depth - 1);
        self.wrapped(&inside)
    }

    /// One plain statement.
    fn statement(&mut self) -> Vec<u8> {
        let text = match self.dice.below(100) {
            0..30 => self.write(),
            30..38 => self.definition(),
            38..55 => self.hidden(),
            55..62 => self.read(),
            62..78 => self.modes(),
            78..90 => self.transaction(),
            90..97 => self.named(),
            _ => self.locks(),
        };
        self.cased(text).into_bytes()
    }

    /// The schema that a statement is about.
    fn schema(&mut self) -> &'static str {
        self.dice.pick(&["d", "d", "d", "d", "d", "a", "D"])
    }

    /// An object's name, alone or behind its schema's.
    fn name(&mut self, object: &str) -> String {
        let schema = self.schema();
        match self.dice.below(11) {
            0..4 => object.to_owned(),
            4 | 5 => format!("{schema}.{object}"),
            6 => format!("`{schema}`.`{object}`"),
            7 => format!("{schema} . {object}"),
            8 => format!("{schema}/**/./*!*/`{object}`"),
            9 => format!("\"{schema}\".\"{object}\""),
            _ => format!("`{schema}`.{object}"),
        }
    }

    fn table(&mut self) -> String {
        let table = self.dice.pick(&["t", "t", "t", "m", "u", "x1", "x2"]);
        self.name(table)
    }

    /// A statement that says what it changes.
    fn write(&mut self) -> String {
        let (table, n) = (self.table(), self.number());
        match self.dice.below(20) {
            0..4 => format!("insert into {table} values ({n})"),
            4 => format!("insert {table} set n = {n}"),
            5 => format!("replace into {table} (n) values ({n}), ({n} + 1)"),
            6 => format!("update {table} set n = n + 1000 where n < {n}"),
            7 => format!("delete from {table} where n > {n} limit 3"),
            8 => format!("truncate table {table}"),
            9 => format!("insert into {table} select {n} from a.t limit 1"),
            10 => format!("update {table}, a.zz set {table}.n = {n}"),
            11 => format!("delete {table} from {table} join a.zz"),
            12 => format!("with c as (select {n} as z) delete from {table} where n > 990"),
            13 => format!("load data local infile 'f' into table {table} (n)"),
            14 => format!("call {}()", self.name("p")),
            15 => format!("call {}({})", self.name("pi"), n),
            16 => format!("call {}{}", self.schema(), self.dice.pick(&[".pe()", ".p", ".pr()"])),
            17 => format!("insert into {table} values ({n}) on duplicate key update n = {n}"),
            18 => format!("insert into {table} values ({n}) returning n"),
            _ => {
                let verb = self.dice.pick(&["/*!replace*/", "insert/**/"]);
                format!("{verb} into {table} values ({n})")
            }
        }
    }

    /// A statement that makes, moves or removes something.
    fn definition(&mut self) -> String {
        let (n, object) = (self.number(), self.dice.pick(&["x1", "x2", "x3"]));
        let table = self.name(object);
        match self.dice.below(25) {
            0 | 1 => format!("create table {table} (n int)"),
            2 | 3 => format!("create table {table} select {n} as n"),
            4 => format!("create table if not exists {table} like {}", self.name("t")),
            5 => format!("drop table if exists {table}"),
            6 => format!("alter table {} comment = 'c{n}'", self.table()),
            7 => format!("alter table {} comment='\\\\', rename to {table} -- '", self.name("zz")),
            8 => {
                let zz = self.name("zz");
                format!("alter table {zz} comment=\"\\\\\", rename to {table} -- \"")
            }
            9 => format!("rename table a.zz to {table}"),
            10 => format!("alter table {} rename {table}", self.name("x2")),
            11 => format!("create or replace view d.v{} as select {n} as z", n % 3),
            12 => format!("create procedure d.p{}() select {n}", n % 3),
            13 => format!("drop procedure if exists d.p{}", n % 3),
            14 => format!("create function d.f{}() returns int return {n}", n % 3),
            15 => format!("create index i{n} on {} (n)", self.table()),
            16 => format!("alter table {} add c{n} int, drop column if exists c{n}", self.table()),
            17 => format!("create trigger d.tr{n} before insert on d.u for each row set @q = 1"),
            18 => format!("create event d.e{n} on schedule at '2037-01-01' do set @q = 1"),
            19 => format!("alter database {} comment 'c{n}'", self.schema()),
            20 => format!("create sequence {}", self.name("s1")),
            21 => "drop database if exists other".to_owned(),
            22 => "create database if not exists other".to_owned(),
            _ if self.setting.fenced => {
                format!("drop database {}", self.dice.pick(&["d", "`d`", "D"]))
            }
            _ => format!("create temporary table {} select {n} as n", self.name("tmp")),
        }
    }

    /// A function that writes, or a sequence's next value.
    fn call(&mut self) -> String {
        let f = self.name("f");
        match self.dice.below(12) {
            0..4 => format!("{f}()"),
            4 => format!("{f} ()"),
            5 => format!("(select {f}())"),
            6 => format!("@w := {f}()"),
            7 => format!("benchmark(1, {f}())"),
            8 => format!("case when {f}() then 1 end"),
            9 => format!("nextval({})", self.name("sq")),
            10 => format!("next value for {}", self.name("sq")),
            _ => {
                let n = self.number();
                format!("setval({}, {})", self.name("sq"), n + 5000)
            }
        }
    }

    /// A view whose function writes.
    fn view(&mut self) -> String {
        let late = self.setting.fenced && self.setting.fresh;
        let view = if late { self.dice.pick(&["v", "qv", "vs"]) } else { "v" };
        self.name(view)
    }

    /// What looks like a read and writes.
    fn hidden(&mut self) -> String {
        if self.dice.chance(30) {
            let view = self.view();
            return match self.dice.below(9) {
                0..3 => format!("select * from {view}"),
                3 => format!("select count(*) from {view}"),
                4 => format!("set @w = (select count(*) from {view})"),
                5 => format!("table {view}"),
                6 => format!("explain analyze select * from {view}"),
                7 => format!("show columns from {view}"),
                _ => format!("insert into a.zz select 7 from {view}"),
            };
        }
        let call = self.call();
        match self.dice.below(26) {
            0..3 => format!("select {call}"),
            3 => format!("do {call}"),
            4 => format!("set @w = {call}"),
            5 => format!("values ({call})"),
            6 => format!("select 1 from {} where {call}", self.name("t")),
            7 => format!("select 1 order by {call}"),
            8 => format!("select {call} into @w"),
            9 => format!("with c as (select {call} as z) select * from c"),
            10 => format!("select 1 union select {call}"),
            11 => format!("show tables where {call}"),
            12 => format!("show variables where {call} = 1"),
            13 => format!("set names utf8mb4, @z = {call}"),
            14 => format!("set sql_mode = (select if({call}, '', ''))"),
            15 => format!("analyze select {call}"),
            16 => format!("explain analyze select {call}"),
            17 => format!("select * from (select {call} as z) q"),
            18 => format!("insert into a.zz select {call}"),
            19 => format!("update a.zz set n = {call}"),
            20 => format!("create temporary table tmp2 select {call} as z"),
            21 => format!("prepare s0 from ({call})"),
            22 => format!("call a.ph({call})"),
            23 => format!("set autocommit = ({call})"),
            24 => format!("create table a.x3 select {call} as n"),
            _ => format!("execute s0 using {call}"),
        }
    }

    fn read(&mut self) -> String {
        let table = self.table();
        // Functions of views run in these on MariaDB.
        let late = self.setting.fenced && self.setting.fresh;
        match self.dice.below(if late { 11 } else { 9 }) {
            9 => "select count(*) from information_schema.columns".to_owned(),
            10 => "select 1 from information_schema.tables where table_schema='d'".to_owned(),
            0 => "select 1".to_owned(),
            1 => format!("select count(*) from {table}"),
            2 => format!("select * from {table} for update"),
            3 => format!("select * from {table} limit 2"),
            4 => format!("show create table {table}"),
            5 => format!("select max(n) from {table} into @w"),
            6 => "select database(), @@sql_mode".to_owned(),
            7 => format!("explain update {table} set n = 1"),
            _ => format!("check table {table}"),
        }
    }

    /// A mode, a character set, a schema: what the session reads its texts by.
    fn modes(&mut self) -> String {
        let value = self.mode();
        let names = ["sql_mode", "sql_mode", "`sql_mode`", "`sql_mödé`", "SQL_MODE"];
        let accent = self.dice.pick(&names);
        match self.dice.below(24) {
            0..4 => format!("set {accent} = {value}"),
            4 => format!("set session {accent} = {value}"),
            5 => format!("set @@{accent} := {value}"),
            6 => format!("set @@session.{accent} = {value}"),
            7 => format!("set local {accent}={value}, @q = 1"),
            8 => format!("set @q = 1, @@local.{accent} = {value}"),
            9 => format!("set @q = {value}, sql_mode = @q"),
            10 => format!("set sql_mode = '', {accent} = {value}"),
            11 => format!("set sql_mode = {value}, autocommit = maybe"),
            12..16 => format!("set names {}", self.charset()),
            16 => format!("set character set {}", self.charset()),
            17 => format!("set character_set_client = {}", self.charset()),
            18 => format!("set names default, sql_mode = {value}"),
            19..23 => format!("use {}", self.dice.pick(&["d", "a", "D", "`d`", "`a`", "nowhere"])),
            _ => format!("set session {accent} = {value}, global sql_mode = ''"),
        }
    }

    fn mode(&mut self) -> &'static str {
        self.dice.pick(&[
            "''",
            "''",
            "'ANSI_QUOTES'",
            "'ANSI_QUOTES'",
            "'NO_BACKSLASH_ESCAPES'",
            "'NO_BACKSLASH_ESCAPES'",
            "'PIPES_AS_CONCAT'",
            "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
            "'ansi'",
            "'ORACLE'",
            "'IGNORE_SPACE'",
            "ANSI_QUOTES",
            "default",
            "4",
            "concat(@@sql_mode, ',ANSI_QUOTES')",
            "replace(@@sql_mode, 'ANSI_QUOTES', '')",
            "concat('NO_BACKSLASH', '_ESCAPES')",
            "@q",
            "(select 'ANSI_QUOTES')",
            "0x414E53495F51554F544553",
        ])
    }

    fn charset(&mut self) -> &'static str {
        self.dice.pick(&[
            "gbk", "gbk", "sjis", "big5", "utf8mb4", "utf8mb4", "latin1", "binary", "swe7", "utf8",
            "default", "'gbk'", "gb18030", "cp932",
        ])
    }

    fn transaction(&mut self) -> String {
        let variable = self.setting.flavour.read_only_variable();
        let fixed = [
            "begin",
            "begin work",
            "start transaction",
            "start transaction read only",
            "start transaction read write",
            "start transaction with consistent snapshot",
            "commit",
            "commit",
            "commit and chain",
            "rollback",
            "rollback and chain",
            "commit release",
            "savepoint p1",
            "rollback to p1",
            "release savepoint p1",
            "set autocommit = 0",
            "set autocommit = 1",
            "set @@autocommit := off",
            "set session autocommit = default",
            "set transaction read only",
            "set transaction read write",
            "set session transaction read only",
            "set session transaction read write",
            "set transaction isolation level read committed, read write",
            "set completion_type = 1",
            "set completion_type = 0",
            "set completion_type = 'RELEASE'",
            "/*!commit*/",
            "xa start 'b'",
            "xa end 'b'",
            "xa prepare 'b'",
            "xa commit 'b'",
            "xa rollback 'b'",
            "xa commit 'b' one phase",
            "rollback /*!90000 to p1 */",
        ];
        match self.dice.below(40) {
            0 => format!("set {variable} = 0"),
            1 => format!("set session {variable} = 1"),
            2 => format!("set @@{variable} = 0"),
            3 => format!("set `{variable}` = off, @q = 2"),
            4 => "set session transaction_réad_only = 0".to_owned(),
            _ => self.dice.pick(&fixed).to_owned(),
        }
    }

    /// Statements behind names and variables.
    fn named(&mut self) -> String {
        let name = self.dice.pick(&["s0", "s1", "`s0`", "S0", "é", "`è`", "`s0 `"]);
        match self.dice.below(9) {
            0..3 => format!("execute {name}"),
            3 => format!("deallocate prepare {name}"),
            4 => format!("prepare {name} from @v"),
            5 => "execute immediate @v".to_owned(),
            6 => format!("execute {name} using @q"),
            7 => "set @v = concat('select', ' 1')".to_owned(),
            _ => format!("drop prepare {name}"),
        }
    }

    fn locks(&mut self) -> String {
        let table = self.table();
        match self.dice.below(8) {
            0 => format!("lock tables {table} write"),
            1 => format!("lock tables {table} read"),
            2 => "unlock tables".to_owned(),
            3 => "select get_lock('l', 0)".to_owned(),
            4 => format!("handler {table} open as h"),
            5 => "handler h read first".to_owned(),
            6 => "flush tables".to_owned(),
            _ => "select release_all_locks()".to_owned(),
        }
    }

    fn cased(&mut self, text: String) -> String {
        match self.dice.below(12) {
            0 if !text.contains('\'') => {
                text.to_uppercase().replace("D.", "d.").replace("A.", "a.")
            }
            1 => text.replacen(' ', "\t", 1),
            2 => text.replacen(' ', "/* ; ' */", 1),
            3 => text.replacen(' ', "\u{c}\u{b}\n", 1),
            4 => text.replacen(' ', " -- '\n", 1),
            5 => text.replacen(' ', " # \"\n", 1),
            6 => format!("({text})"),
            _ => text,
        }
    }

    /// A text as a literal of a string.
    fn literal(&mut self, text: &[u8]) -> Vec<u8> {
        let twice = |what: &[u8]| {
            let doubled = |b: &u8| if what.contains(b) { vec![*b, *b] } else { vec![*b] };
            text.iter().flat_map(doubled).collect()
        };
        let both: Vec<u8> = twice(b"'\\");
        let quotes: Vec<u8> = twice(b"'");
        let hex: String = text.iter().map(|b| format!("{b:02x}")).collect();
        match self.dice.below(9) {
            0..3 => cat(&[b"'", &both, b"'"]),
            3 => cat(&[b"'", &quotes, b"'"]),
            4 => cat(&[b"\"", &twice(b"\"\\"), b"\""]),
            5 => cat(&[b"0x", hex.as_bytes()]),
            6 => cat(&[b"x'", hex.as_bytes(), b"'"]),
            7 => cat(&[b"concat('', '", &both, b"')"]),
            _ => cat(&[b"_utf8mb4'", &both, b"'"]),
        }
    }

    /// A text with something around it.
    fn wrapped(&mut self, text: &[u8]) -> Vec<u8> {
        match self.dice.below(100) {
            0..18 => self.beside(text),
            18..32 => self.commented(text),
            32..50 => self.prepared(text),
            50..64 => self.maria_only(text),
            64..84 => self.quoted(text),
            84..92 => self.as_body(text),
            _ => self.explained(text),
        }
    }

    /// Several statements.
    fn beside(&mut self, text: &[u8]) -> Vec<u8> {
        let other = self.statement();
        match self.dice.below(8) {
            0 => cat(&[&other, b"; ", text]),
            1 => cat(&[text, b"; ", &other]),
            2 => cat(&[b"select 1; ", text]),
            3 => cat(&[text, b"; select 1"]),
            4 => cat(&[b"; ", text, b";"]),
            5 => cat(&[b"commit; ", text, b"; commit"]),
            6 => cat(&[b"select ';'; ", text, b" /* ; */"]),
            _ => cat(&[b"use d; ", text]),
        }
    }

    fn commented(&mut self, text: &[u8]) -> Vec<u8> {
        match self.dice.below(12) {
            0 => cat(&[b"/*!", text, b"*/"]),
            1 => cat(&[b"/*!50000 ", text, b" */"]),
            2 => cat(&[b"/*!99999 select 1 */", text]),
            3 => cat(&[b"/*M! ", text, b" */"]),
            4 => cat(&[b"/*M!100100 ", text, b"*/"]),
            5 => cat(&[b"select 1 /*!; ", text, b"*/"]),
            6 => cat(&[b"/*!50000 /* x */ ", text, b"*/"]),
            7 => cat(&[b"-- x\n", text]),
            8 => cat(&[b"#\n", text, b"-- "]),
            9 => cat(&[b"select 1 --1; ", text]),
            10 => cat(&[b"select 1 /*!999999 */; ", text]),
            _ => cat(&[b"/*!080000 ", text, b"*/"]),
        }
    }

    /// Behind a name or a variable.
    fn prepared(&mut self, text: &[u8]) -> Vec<u8> {
        let literal = self.literal(text);
        match self.dice.below(11) {
            0 | 1 => cat(&[b"prepare s0 from ", &literal]),
            2 => cat(&[b"prepare s1 from ", &literal]),
            3 => cat(&[b"set @v = ", &literal]),
            4 => cat(&[b"select ", &literal, b" into @v"]),
            5 => cat(&[b"prepare s0 from ", &literal, b"; execute s0"]),
            6 => cat(&[b"set @v = ", &literal, b"; prepare s0 from @v; execute s0"]),
            7 => cat(&["prepare `é` from ".as_bytes(), &literal]),
            8 => cat(&[b"prepare `s0 ` from ", &literal]),
            9 => cat(&[b"prepare S1 from ", &literal, b"; execute s1; execute s0"]),
            _ => cat(&[b"execute immediate ", &literal]),
        }
    }

    /// Forms of MariaDB's own; on MySQL they are errors.
    fn maria_only(&mut self, text: &[u8]) -> Vec<u8> {
        if !self.maria() && self.dice.chance(80) {
            return self.prepared(text);
        }
        let literal = self.literal(text);
        // MariaDB 10.11 itself dies of a loop behind SET STATEMENT.
        let loops = [&b"for "[..], b"if ", b"begin "].iter().any(|word| text.starts_with(word));
        match self.dice.below(11) {
            2..6 if loops => cat(&[b"execute immediate ", &literal]),
            0 => cat(&[b"execute immediate ", &literal]),
            1 => cat(&[b"execute immediate concat(", &literal, b", '')"]),
            2 => cat(&[b"set statement max_statement_time=10 for ", text]),
            3 => cat(&[b"set statement sql_mode='ANSI_QUOTES' for ", text]),
            4 => cat(&[b"set statement tx_read_only=0 for ", text]),
            5 => cat(&[b"set statement sql_mode='', lock_wait_timeout=1 for ", text]),
            6 => cat(&[b"begin not atomic ", text, b"; end"]),
            7 => cat(&[b"begin not atomic declare q int; ", text, b"; end; select 1"]),
            8 => cat(&[b"if 1 then ", text, b"; end if"]),
            9 => cat(&[b"begin ", text, b"; end"]),
            _ => cat(&[b"for i in 1..1 do ", text, b"; end for"]),
        }
    }

    /// Hidden behind a quote whose end moves with modes and character sets.
    fn quoted(&mut self, text: &[u8]) -> Vec<u8> {
        match self.dice.below(16) {
            0 | 1 => cat(&[br#"select 1 as "\"; "#, text, br#" -- ""#]),
            2 | 3 => cat(&[br"select '\'; ", text, b" -- '"]),
            4 => cat(&[br#"select "'"; "#, text, br#" -- '""#]),
            5 => cat(&[b"select '\xbf\\'; ", text, b" -- '"]),
            6 => cat(&[b"select '\x83\\'; ", text, b" -- '"]),
            7 => cat(&[b"select `\xbf`; ", text, b" -- `"]),
            8 => cat(&[br"select '\\'; ", text, b" -- '"]),
            9 => cat(&[br"select '\\\'; ", text, b" -- '"]),
            10 => cat(&[br"select '''\'; ", text, b" -- '"]),
            11 => cat(&[br#"select 1 as "a\\"; "#, text, br#" -- ""#]),
            12 => cat(&[br"select 1 /* '\' */; ", text, b" -- '"]),
            13 => cat(&[br"select N'\', _latin1'; ", text, b" -- '"]),
            14 => cat(&[b"select '\x81'; ", text, b" -- '"]),
            _ => cat(&[b"select $$ ' $$; ", text, b" -- '"]),
        }
    }

    /// Inside of what looks like a body, or is one. Routines are made in `d` only.
    fn as_body(&mut self, text: &[u8]) -> Vec<u8> {
        let inside = cat(&[b" select 1 as begin; ", text, b"; select 1 as end"]);
        match self.dice.below(8) {
            0 => cat(&[b"create table event", &inside]),
            1 => cat(&[b"create temporary table event", &inside]),
            2 => cat(&[b"create or replace procedure d.p9() begin ", text, b"; end"]),
            3 => cat(&[b"create procedure d.p9() ", text]),
            4 => cat(&[b"create view d.event as", &inside]),
            5 => cat(&[b"alter table event comment 'x',", &inside]),
            6 => cat(&[b"create procedure d.p8() begin end; ", text]),
            _ => cat(&[b"call d.p9(); ", text]),
        }
    }

    /// Not of several statements: MySQL 9.7 itself has died of one.
    fn explained(&mut self, text: &[u8]) -> Vec<u8> {
        if text.contains(&b';') {
            return self.commented(text);
        }
        let around: &[u8] = match self.dice.below(8) {
            0 => b"explain ",
            1 => b"analyze ",
            2 => b"explain analyze ",
            3 => b"analyze format=json ",
            4 => b"describe ",
            5 => b"explain extended ",
            6 => b"explain format=tree ",
            _ => b"explain into @v ",
        };
        cat(&[around, text])
    }
}
