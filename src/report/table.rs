//! Text in columns for a terminal of a hundred.

/// Columns of a line.
pub(super) const WIDTH: usize = 100;

/// The text, or its ends with `…` between where it is longer than `width` characters: names differ at their ends.
pub(super) fn clip(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_string();
    }
    let head = width.saturating_sub(1) / 3;
    let tail = width.saturating_sub(1) - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

/// Parts of a whole in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_string() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// Breaks a sentence at blanks so that its lines fit; the later ones are indented by `indent`.
pub(super) fn wrap(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(clip("abcdefghij", 10), "abcdefghij");
        assert_eq!(clip("abcdefghijk", 7), "ab…hijk");
        assert_eq!(percent(1, 3), "33.3 %");
    }
}
