//! What is wrong with a configuration, all of it at once.
//!
//! Purpose: one report with file, line, key and what was expected, sorted by line, so that an
//! operator corrects a file in one round. Called by the rest of `config`; shown by `cli`. It never
//! holds a value that could be a password: problems with URLs and keys name the part, not the text.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line in the file, from 1; `None` on the command line.
    pub line: Option<usize>,
    /// The key, such as `engine.tls`, or the option, such as `--engine`.
    pub key: String,
    /// What was expected and what to do, as a sentence without its full stop.
    pub message: String,
}

/// Everything that is wrong with one configuration, sorted by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    /// The file; `None` when the command line was the configuration.
    pub file: Option<PathBuf>,
    /// At least one problem.
    pub list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match (&self.file, problem.line) {
                (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
                (Some(file), None) => write!(f, "{}: ", file.display())?,
                (None, _) => f.write_str("command line: ")?,
            }
            write!(f, "{}: {}", problem.key, problem.message)?;
        }
        Ok(())
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file itself could not be read.
    #[error("{}: the configuration can't be read: {reason}; check the path and its permissions",
            path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// It was read, and something in it is wrong.
    #[error("{0}")]
    Invalid(Problems),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_one_line_with_its_place() {
        let problem = |line, key: &str| Problem { line, key: key.into(), message: "m".into() };
        let file = Some(PathBuf::from("f.toml"));
        let list = vec![problem(Some(3), "a.b"), problem(None, "c")];
        assert_eq!(Problems { file, list }.to_string(), "f.toml:3: a.b: m\nf.toml: c: m");
        let flags = Problems { file: None, list: vec![problem(None, "--engine")] };
        assert_eq!(flags.to_string(), "command line: --engine: m");
    }
}
