//! The statements in a script for `mysqltest`, the engines' own test driver.
//!
//! Its own commands go, and so does every statement with one of its variables in it. What a script
//! does in other sessions, by loops or by files, isn't followed.

use std::path::{Path, PathBuf};

/// The driver's commands, beside those that begin with `enable_` or `disable_`.
const COMMANDS: &[&str] = &[
    "append_file",
    "cat_file",
    "change_user",
    "character_set",
    "chmod",
    "connect",
    "connection",
    "copy_file",
    "copy_files_wildcard",
    "dec",
    "die",
    "diff_files",
    "dirty_close",
    "disconnect",
    "echo",
    "else",
    "end_timer",
    "error",
    "eval",
    "evalp",
    "exec",
    "exec_in_background",
    "execw",
    "exit",
    "expr",
    "file_exists",
    "horizontal_results",
    "if",
    "inc",
    "let",
    "list_files",
    "list_files_append_file",
    "list_files_write_file",
    "lowercase_result",
    "mkdir",
    "move_file",
    "output",
    "partially_sorted_result",
    "perl",
    "ping",
    "query",
    "query_attributes",
    "query_get_value",
    "query_horizontal",
    "query_vertical",
    "real_sleep",
    "reap",
    "remove_file",
    "remove_files_wildcard",
    "replace_column",
    "replace_numeric_round",
    "replace_regex",
    "replace_result",
    "require",
    "reset_connection",
    "result",
    "result_format",
    "rmdir",
    "save_master_pos",
    "send",
    "send_eval",
    "send_quit",
    "send_shutdown",
    "shutdown_server",
    "skip",
    "skip_if_hypergraph",
    "sleep",
    "sorted_result",
    "source",
    "start_server",
    "start_timer",
    "sync_slave_with_master",
    "sync_with_master",
    "system",
    "vertical_results",
    "wait_for_slave_to_stop",
    "while",
    "write_file",
    "write_line",
];

/// The scripts of one engine, sorted by name.
pub(crate) fn corpus(folder: &str) -> Vec<PathBuf> {
    let tools = std::env::var_os("FENCEWIRE_TOOLS_DIR").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/fencewire-tools"),
        PathBuf::from,
    );
    let folder = tools.join("corpus").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| {
        panic!("no corpus in {}: {error}; run tools/setup.sh test", folder.display())
    });
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The statements of a script; none when it isn't UTF-8.
pub(crate) fn statements(file: &Path) -> Vec<String> {
    let Ok(script) = String::from_utf8(std::fs::read(file).unwrap()) else { return Vec::new() };
    let mut reader = Reader { delimiter: ";".to_owned(), ..Reader::default() };
    for line in script.lines() {
        reader.line(line);
    }
    reader.found
}

#[derive(Default)]
struct Reader {
    found: Vec<String>,
    current: String,
    delimiter: String,
    quote: Option<char>,
    /// The word that ends a file or a Perl script inside this one.
    file_end: Option<String>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        if let Some(end) = &self.file_end {
            if line.trim() == end {
                self.file_end = None;
            }
            return;
        }
        let at_start = self.current.trim().is_empty() && self.quote.is_none();
        if at_start && self.own_line(line.trim()) {
            return;
        }
        self.text(line);
    }

    /// Lines that are the driver's as a whole: comments, braces, `--command`, files inside.
    fn own_line(&mut self, line: &str) -> bool {
        if line.is_empty() || line.starts_with('#') || line == "{" || line == "}" {
            return true;
        }
        let dashed = line.strip_prefix("--");
        let command = dashed.unwrap_or(line).trim_start().trim_end_matches(';');
        let words: Vec<&str> = command.split_whitespace().collect();
        let first = words.first().copied().unwrap_or_default().to_ascii_lowercase();
        match first.as_str() {
            "delimiter" if dashed.is_some() => {
                self.delimiter = (*words.get(1).unwrap_or(&";")).to_owned();
            }
            "perl" | "write_file" | "append_file" => {
                let named = words.get(if first == "perl" { 1 } else { 2 }).copied();
                self.file_end = Some(named.unwrap_or("EOF").to_owned());
            }
            "if" | "while" if dashed.is_none() && line.ends_with('{') => {}
            _ => return dashed.is_some(),
        }
        true
    }

    fn text(&mut self, line: &str) {
        let mut at = 0;
        while at < line.len() {
            let rest = &line[at..];
            let c = rest.chars().next().unwrap();
            if let Some(quote) = self.quote {
                if c == '\\' && quote != '`' {
                    let escaped = rest.chars().nth(1).map_or(0, char::len_utf8);
                    self.current.push_str(&rest[..1 + escaped]);
                    at += 1 + escaped;
                    continue;
                }
                if c == quote {
                    self.quote = None;
                }
            } else if rest.starts_with(&self.delimiter) {
                at += self.delimiter.len();
                self.end();
                continue;
            } else if c == '#' || rest.starts_with("-- ") {
                break;
            } else if matches!(c, '\'' | '"' | '`') {
                self.quote = Some(c);
            }
            self.current.push(c);
            at += c.len_utf8();
        }
        self.current.push('\n');
    }

    fn end(&mut self) {
        let text = std::mem::take(&mut self.current);
        let text = text.trim();
        let word = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or("");
        let word = word.to_ascii_lowercase();
        if word == "delimiter" {
            self.delimiter = text[word.len()..].trim().to_owned();
            return;
        }
        let own = COMMANDS.contains(&word.as_str())
            || word.starts_with("enable_")
            || word.starts_with("disable_");
        if !text.is_empty() && !own && !text.contains('$') {
            self.found.push(text.to_owned());
        }
    }
}
