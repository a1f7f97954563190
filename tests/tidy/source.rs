//! A source file as the rules see it: text without comments and literals, and what is test code.

/// One file. `code` has the same lines as `raw`, with comments and the insides of string and
/// character literals replaced by blanks.
pub struct Source {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub raw: Vec<String>,
    pub code: Vec<String>,
    /// Per line: inside `#[cfg(test)]`, or the whole file is test code.
    pub test: Vec<bool>,
}

impl Source {
    /// Prepares a file's text for the rules.
    pub fn new(path: &str, text: &str) -> Self {
        let lines = |t: &str| t.lines().map(str::to_owned).collect::<Vec<_>>();
        let code = lines(&blank_out(text));
        let whole_file = !path.starts_with("src/")
            || path.ends_with("/tests.rs")
            || path.split('/').any(|part| part == "tests");
        let test = if whole_file { vec![true; code.len()] } else { test_lines(&code) };
        Self { path: path.to_owned(), raw: lines(text), code, test }
    }

    /// Takes the whole file for test code.
    pub fn into_test(mut self) -> Self {
        self.test.fill(true);
        self
    }

    /// The files that `#[cfg(test)] mod NAME;` in this one may mean.
    pub fn test_modules(&self) -> Vec<String> {
        let names = self.code.iter().zip(&self.test).filter(|(_, test)| **test);
        let names = names.filter_map(|(line, _)| line.split_once("mod ")?.1.strip_suffix(';'));
        let (dir, file) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let dir = match file {
            "mod.rs" | "lib.rs" | "main.rs" => dir.to_owned(),
            other => format!("{dir}/{}", other.trim_end_matches(".rs")),
        };
        names.flat_map(|n| [format!("{dir}/{n}.rs"), format!("{dir}/{n}/mod.rs")]).collect()
    }

    /// The lines of production code with their numbers, counted from 1.
    pub fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        self.numbered().filter(|(n, _)| !self.test[n - 1])
    }

    /// All lines, blanked, with their numbers counted from 1.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().map(|(i, line)| (i + 1, line.as_str()))
    }

    /// The blanked text as one, for what spans lines.
    pub fn text(&self) -> String {
        self.code.join("\n")
    }

    /// True when the file is `place` or, where that ends in `/`, below it.
    pub fn is_in(&self, place: &str) -> bool {
        if place.ends_with('/') { self.path.starts_with(place) } else { self.path == place }
    }

    /// True when the file is in one of the places.
    pub fn is_in_any(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.is_in(place))
    }

    /// The words of a `// tidy: …` comment on this line or on the one above, which lifts a rule.
    pub fn excuse(&self, line: usize) -> Option<&str> {
        let at = |n: usize| self.raw.get(n.checked_sub(1)?)?.split_once("// tidy: ").map(|p| p.1);
        at(line).or_else(|| {
            let above = self.raw.get(line.checked_sub(2)?)?;
            above.trim_start().starts_with("//").then(|| at(line - 1))?
        })
    }
}

/// The line number (from 1) of a byte offset.
pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Marks the items behind `#[cfg(test)]`, from the attribute to their closing brace or semicolon.
fn test_lines(code: &[String]) -> Vec<bool> {
    let mut test = vec![false; code.len()];
    let mut from = 0;
    while let Some(found) = code[from..].iter().position(|l| l.contains("#[cfg(test)]")) {
        let start = from + found;
        let end = end_of_item(code, start);
        test[start..=end].fill(true);
        from = end + 1;
    }
    test
}

/// The last line of the item that starts behind an attribute on line `start`.
fn end_of_item(code: &[String], start: usize) -> usize {
    let mut depth = 0_i32;
    let mut opened = false;
    for (i, line) in code.iter().enumerate().skip(start) {
        let line = if i == start { line.replace("#[cfg(test)]", "") } else { line.clone() };
        for c in line.chars() {
            match c {
                '{' => (depth, opened) = (depth + 1, true),
                '}' => depth -= 1,
                ';' if !opened && depth == 0 => return i,
                _ => {}
            }
            if opened && depth == 0 {
                return i;
            }
        }
    }
    code.len().saturating_sub(1)
}

/// Replaces comments and the insides of literals by blanks; line breaks stay where they are.
fn blank_out(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let before = i.checked_sub(1).map_or(' ', |p| chars[p]);
        let end = comment_end(&chars, i)
            .or_else(|| raw_string_end(&chars, i, before))
            .or_else(|| quoted_end(&chars, i));
        match end {
            Some(end) => {
                let inner = |c: &char| if *c == '\n' { '\n' } else { ' ' };
                out.extend(chars[i..end].iter().map(inner));
                i = end;
            }
            None => {
                out.push(chars[i]);
                i += 1;
            }
        }
    }
    out
}

fn starts(chars: &[char], at: usize, with: &str) -> bool {
    with.chars().enumerate().all(|(k, c)| chars.get(at + k) == Some(&c))
}

/// The end of the line or (nested) block comment that starts here.
fn comment_end(chars: &[char], start: usize) -> Option<usize> {
    if starts(chars, start, "//") {
        let length = chars[start..].iter().position(|c| *c == '\n');
        return Some(length.map_or(chars.len(), |n| start + n));
    }
    if !starts(chars, start, "/*") {
        return None;
    }
    let (mut depth, mut i) = (0, start);
    while i < chars.len() {
        if starts(chars, i, "/*") {
            (depth, i) = (depth + 1, i + 2);
        } else if starts(chars, i, "*/") {
            (depth, i) = (depth - 1, i + 2);
            if depth == 0 {
                return Some(i);
            }
        } else {
            i += 1;
        }
    }
    Some(chars.len())
}

/// The end of the raw string (`r"…"`, `br#"…"#`, `cr"…"`) that starts here.
fn raw_string_end(chars: &[char], start: usize, before: char) -> Option<usize> {
    if before.is_alphanumeric() || before == '_' {
        return None;
    }
    let prefixed = matches!(chars[start], 'b' | 'c') && chars.get(start + 1) == Some(&'r');
    let mut i = if prefixed { start + 2 } else { start + 1 };
    if !prefixed && chars[start] != 'r' {
        return None;
    }
    let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
    i += hashes;
    if chars.get(i) != Some(&'"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let found = (i + 1..chars.len()).find(|at| starts(chars, *at, &close));
    Some(found.map_or(chars.len(), |at| at + 1 + hashes))
}

/// The end of the string or character literal that starts here; a lifetime is none.
fn quoted_end(chars: &[char], start: usize) -> Option<usize> {
    let quote = chars[start];
    if quote != '"' && quote != '\'' {
        return None;
    }
    let is_char = chars.get(start + 1) == Some(&'\\') || chars.get(start + 2) == Some(&'\'');
    if quote == '\'' && !is_char {
        return None;
    }
    let mut i = start + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    Some((i + 1).min(chars.len()))
}
