//! The pest grammar and what is said when it does not match.

use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;

use super::cursor::{Cursor, parse_int};
use super::errors::{Res, expected};
use crate::diag::Span;

pub(super) use rules::Rule;

/// A matched piece of text.
pub(super) type Node<'t> = Pair<'t, Rule>;

mod rules {
    //! Generated from the grammar.
    #[derive(pest_derive::Parser)]
    #[grammar = "../grammar/hlo.pest"]
    pub(in super::super) struct Hlo;
}

/// Reads one rule at the cursor and moves it behind. Blanks before it are skipped.
pub(super) fn read<'t>(cur: &mut Cursor<'t>, rule: Rule) -> Res<Node<'t>> {
    cur.blanks();
    let text = cur.rest();
    match rules::Hlo::parse(rule, text) {
        Ok(mut pairs) => {
            let node = pairs.next().expect("a match of a rule that is not silent has its pair");
            cur.at += node.as_span().end();
            Ok(node)
        }
        Err(error) => {
            let InputLocation::Pos(place) = error.location else { return cur.expected("something else") };
            let what = match &error.variant {
                ErrorVariant::ParsingError { positives, .. } => name_all(positives),
                ErrorVariant::CustomError { message } => {
                    let at = cur.at + place;
                    return super::errors::fail("P014", Span::new(at, at + 1), format!("expected fewer nested parts: {message}"));
                }
            };
            let mut at = Cursor { text: cur.text, at: cur.at + place };
            at.blanks();
            expected(cur.text, at.at, &what)
        }
    }
}

/// Tries one rule on a line that is printed as XLA prints it; silent when it does not match.
pub(super) fn matches(rule: Rule, line: &str) -> Option<Node<'_>> {
    rules::Hlo::parse(rule, line).ok().and_then(|mut pairs| pairs.next())
}

/// Where a node stands in the text that the cursor walks.
pub(super) fn span_of(text: &str, node: &Node<'_>) -> Span {
    let start = node.as_str().as_ptr() as usize - text.as_ptr() as usize;
    Span::new(start, start + node.as_str().len())
}

/// A cursor at the beginning of a node.
pub(super) fn cursor_at<'t>(text: &'t str, node: &Node<'_>) -> Cursor<'t> {
    Cursor { text, at: span_of(text, node).start as usize }
}

/// The integer of an `int` node.
pub(super) fn int(text: &str, node: &Node<'_>) -> Res<i64> {
    parse_int(node.as_str(), span_of(text, node))
}

/// The integers directly inside a node.
pub(super) fn ints(text: &str, node: Node<'_>) -> Res<Vec<i64>> {
    node.into_inner().filter(|n| n.as_rule() == Rule::int).map(|n| int(text, &n)).collect()
}

/// The children of that rule.
pub(super) fn children<'t>(node: &Node<'t>, rule: Rule) -> impl Iterator<Item = Node<'t>> {
    node.clone().into_inner().filter(move |n| n.as_rule() == rule)
}

/// The key of a `key=` node.
pub(super) fn key<'t>(node: &Node<'t>) -> &'t str {
    node.as_str().trim_end_matches('=')
}

fn name_all(rules: &[Rule]) -> String {
    let mut names: Vec<String> = rules.iter().map(|r| name(*r)).collect();
    names.sort_unstable();
    names.dedup();
    match names.split_last() {
        None => "something else".into(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// A rule in the words of a message.
fn name(rule: Rule) -> String {
    let plain = match rule {
        Rule::int | Rule::number => "a number",
        Rule::ints => "a list of integers like `{0,1}`",
        Rule::string => "a string",
        Rule::word | Rule::label => "a name",
        Rule::ident | Rule::alias_kind | Rule::accuracy_mode => "a word",
        Rule::key | Rule::axes_key | Rule::side_key => "a key with `=`",
        Rule::bool => "`true` or `false`",
        Rule::dxd => "sizes like `3x3`",
        Rule::pad | Rule::pad_config | Rule::window_pad | Rule::window_pads => "padding like `0_0x1_1`",
        Rule::dim_labels => "dimension labels like `b01f_01io->b01f`",
        Rule::slice => "a range like `[0:4:1]`",
        Rule::mesh => "a mesh",
        Rule::element => "an element type",
        Rule::dim | Rule::unbounded | Rule::at_most => "a dimension",
        Rule::layout => "a layout like `{1,0}`",
        other => return format!("{other:?}").replace('_', " "),
    };
    plain.into()
}
