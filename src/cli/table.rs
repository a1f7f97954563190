//! A small table printer for people.
//!
//! Purpose: aligned columns, headings in capitals, no borders; cells are cut to a bounded width,
//! unless they are the answer to a question, and made harmless. Called by `ctl`. It knows nothing
//! of what it prints, and it does not look at the terminal's width: the last column is the one that
//! may run long.

use super::terminal::plain;

/// Widest cell, in characters; longer ones end in `…`.
const CELL_CHARS_MAX: usize = 80;

/// Longest word that is left out whole where a cell is cut, in characters.
const WORD_CHARS_MAX: usize = 20;

/// Rows under headings.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    cell_chars_max: usize,
}

impl Table {
    /// A table with these headings.
    pub(super) fn new(headings: &[&str]) -> Self {
        let rows = vec![headings.iter().map(|text| (*text).to_owned()).collect()];
        Self { rows, cell_chars_max: CELL_CHARS_MAX }
    }

    /// The same with whole cells: for values that are asked for, and not only named.
    pub(super) fn whole(self) -> Self {
        Self { cell_chars_max: usize::MAX, ..self }
    }

    /// Adds a row; cells without a heading are shown too, missing ones are empty.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        let most = self.cell_chars_max;
        self.rows.push(cells.iter().map(|cell| cut(&plain(cell), most)).collect());
    }

    /// The table as lines without trailing spaces.
    pub(super) fn render(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let width = cell.chars().count();
                match widths.get_mut(column) {
                    Some(known) => *known = width.max(*known),
                    None => widths.push(width),
                }
            }
        }
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most - 1).collect();
    // Between words, where one ends near enough.
    let kept = head.char_indices().rev().take(WORD_CHARS_MAX).find(|(_, one)| *one == ' ');
    format!("{}…", kept.map_or(head.as_str(), |(at, _)| &head[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_cells_are_cut_and_harmless() {
        let mut table = Table::new(&["NAME", "N"]);
        table.row(vec!["old/app".into(), "1".into()]);
        table.row(vec!["é\x1b".into(), "x".repeat(100)]);
        let text = table.render();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], ["NAME     N", "old/app  1"]);
        assert!(lines[2].starts_with("é?       xxx") && lines[2].ends_with("x…"), "{text}");
        assert_eq!(lines[2].chars().count(), 9 + CELL_CHARS_MAX);
        let words = cut(&format!("{} next-words", "x".repeat(75)), CELL_CHARS_MAX);
        assert_eq!(words, format!("{}…", "x".repeat(75)), "between words");
        let mut whole = Table::new(&["V"]).whole();
        whole.row(vec!["x".repeat(1000)]);
        assert_eq!(whole.render(), format!("V\n{}", "x".repeat(1000)));
    }
}
