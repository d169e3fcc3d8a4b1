//! The regular expressions of permissions.
//!
//! RabbitMQ matches them with PCRE, unanchored, byte by byte. Here the `regex` crate does, in time linear
//! in the name and in bounded memory. Where the dialects differ a pattern must not come to mean something
//! else in silence, because it says what somebody may do: what PCRE takes literally and the `regex` crate
//! does not is rewritten ([`Translation`]), what else they read differently is refused
//! ([`ReadsDifferently`]), and what the `regex` crate does not know it refuses itself.

use std::sync::{Arc, OnceLock};

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{self, Ast, ClassSetItem, Flag, FlagsItemKind, SpecialLiteralKind};
use weir_model::access::PATTERN_BYTES_MAX;

/// Bytes of a compiled pattern. An ordinary one takes a few thousand; this bounds counted repetitions of
/// counted repetitions.
const PROGRAM_BYTES_MAX: usize = 64 << 10;

/// Bytes of the automaton that is built as names are matched; beyond, matching is slower and no less
/// correct.
const AUTOMATON_BYTES_MAX: usize = 128 << 10;

/// How deep groups may be nested.
const NESTING_MAX: u32 = 50;

/// Characters of a pattern in an error.
const CHARS_SHOWN_MAX: usize = 200;

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern '{pattern}' cannot be used: {why}")]
pub struct PatternError {
    /// The pattern, or its beginning if it is long.
    pub pattern: String,
    /// What is wrong and how to mend it.
    pub why: String,
}

/// A pattern, compiled when it is first asked.
pub(crate) struct Pattern {
    text: Arc<str>,
    /// None if it cannot be compiled.
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    pub(crate) fn new(text: Arc<str>) -> Pattern {
        Pattern { text, compiled: OnceLock::new() }
    }

    /// Whether the pattern is found in the name. One that cannot be compiled is found in none: it was
    /// checked when it was set, so this is one that another version of Weir could compile.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        // What most permissions say; no automaton need be asked.
        if &*self.text == ".*" {
            return true;
        }
        let compiled = self.compiled.get_or_init(|| compile(&self.text).ok());
        compiled.as_ref().is_some_and(|regex| regex.is_match(name))
    }
}

/// A regular expression over the names of queues and exchanges, as RabbitMQ's policies have them.
pub struct NamePattern {
    pattern: Pattern,
}

impl std::fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NamePattern").field(&self.pattern.text).finish()
    }
}

impl NamePattern {
    /// A pattern that was checked when it was set. One that cannot be used is found in no name.
    pub fn new(pattern: &str) -> NamePattern {
        NamePattern { pattern: Pattern::new(pattern.into()) }
    }

    /// The same, of a pattern that is to be set.
    pub fn checked(pattern: &str) -> Result<NamePattern, PatternError> {
        check_pattern(pattern)?;
        Ok(NamePattern::new(pattern))
    }

    /// Whether the pattern is found in the name.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.pattern.matches(name)
    }
}

/// Checks that a pattern can be used.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), PatternError> {
    check_length(pattern)?;
    compile(pattern).map(drop).map_err(|why| PatternError { pattern: shortened(pattern), why })
}

/// Checks that the pattern of a topic permission can be used with these names in it.
pub(crate) fn check_topic_pattern(pattern: &str, user: &str, namespace: &str) -> Result<(), PatternError> {
    check_length(pattern)?;
    let expanded = expand(pattern, user, namespace);
    compile(&expanded).map(drop).map_err(|why| PatternError { pattern: shortened(&expanded), why })
}

fn check_length(pattern: &str) -> Result<(), PatternError> {
    if pattern.len() <= PATTERN_BYTES_MAX {
        return Ok(());
    }
    let why = format!("it is {} bytes long; at most {PATTERN_BYTES_MAX} are allowed", pattern.len());
    Err(PatternError { pattern: shortened(pattern), why })
}

fn shortened(pattern: &str) -> String {
    match pattern.char_indices().nth(CHARS_SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

/// The pattern of a topic permission, with the names in the places of its variables.
pub(crate) fn expand(pattern: &str, user: &str, namespace: &str) -> String {
    pattern
        .replace("{username}", &regex_syntax::escape(user))
        .replace("{vhost}", &regex_syntax::escape(namespace))
}

fn compile(pattern: &str) -> Result<Regex, String> {
    // RabbitMQ takes the empty pattern for one that only the empty name matches.
    let pattern = if pattern.is_empty() { "^$" } else { pattern };
    let translated = Translation { rest: pattern, out: String::new() }.run()?;
    let mut parser = ParserBuilder::new().nest_limit(NESTING_MAX).build();
    let parsed = parser.parse(&translated).map_err(|error| explain(error.kind()))?;
    ast::visit(&parsed, ReadsDifferently)?;
    RegexBuilder::new(&translated)
        .unicode(false)
        .size_limit(PROGRAM_BYTES_MAX)
        .dfa_size_limit(AUTOMATON_BYTES_MAX)
        .nest_limit(NESTING_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it is too large; write it with fewer repetitions".into(),
            // A drawing of the place, and behind it what is wrong there.
            error => error.to_string().rsplit("error: ").next().unwrap_or_default().to_owned(),
        })
}

fn explain(kind: &ast::ErrorKind) -> String {
    match kind {
        ast::ErrorKind::UnsupportedLookAround => "it looks ahead or behind, which is not supported; \
             name what is allowed instead of what is not"
            .into(),
        ast::ErrorKind::UnsupportedBackreference => {
            "it refers back to a group, or has an octal escape, which are not supported; \
             write '\\x' and two digits for a byte"
                .into()
        }
        ast::ErrorKind::FlagUnrecognized => "what follows '(?' is not supported; \
             only '(?:', names of groups, and the flags i, m, s and U are"
            .into(),
        kind => kind.to_string(),
    }
}

/// Rewrites what PCRE takes literally and the `regex` crate does not: braces that are no quantifier, `\<`
/// and `\>`, and within brackets `[`, `&` and `~`.
struct Translation<'a> {
    rest: &'a str,
    out: String,
}

impl Translation<'_> {
    fn run(mut self) -> Result<String, String> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\\' => self.escape(),
                '[' => self.class()?,
                '{' => self.brace()?,
                c => self.copy(c.len_utf8()),
            }
        }
        Ok(self.out)
    }

    fn copy(&mut self, bytes: usize) {
        let (copied, rest) = self.rest.split_at(bytes);
        self.out.push_str(copied);
        self.rest = rest;
    }

    fn copy_escaped(&mut self) {
        self.out.push('\\');
        self.copy(1);
    }

    /// A backslash and what it escapes; the opening brace of `\x{…}` with it.
    fn escape(&mut self) {
        match self.rest.as_bytes() {
            [_, b'x', b'{', ..] => self.copy("\\x{".len()),
            [_, b'<' | b'>', ..] => self.rest = &self.rest[1..],
            _ => self.copy(self.rest.chars().take(2).map(char::len_utf8).sum()),
        }
    }

    /// `[…]`. The first `]` in it is literal.
    fn class(&mut self) -> Result<(), String> {
        let opening = ["[^]", "[]", "[^", "["].into_iter().find(|opening| self.rest.starts_with(*opening));
        self.copy(opening.map_or(1, str::len));
        while let Some(c) = self.rest.chars().next() {
            match c {
                ']' => {
                    self.copy(1);
                    break;
                }
                '\\' => self.escape(),
                '[' => match named_class_bytes(self.rest) {
                    Some(bytes) => self.copy(bytes),
                    None => self.copy_escaped(),
                },
                '&' | '~' => self.copy_escaped(),
                '-' if self.rest.starts_with("--") => {
                    return Err("'--' within brackets is read in two ways; write '\\-' for a hyphen".into());
                }
                c => self.copy(c.len_utf8()),
            }
        }
        Ok(())
    }

    /// A quantifier, or a brace that stands for itself.
    fn brace(&mut self) -> Result<(), String> {
        let rest = self.rest;
        match rest[1..].split_once('}').map(|(inner, _)| inner) {
            Some(inner) if is_count(inner) => self.copy(inner.len() + "{}".len()),
            Some(inner) if inner.strip_prefix(',').is_some_and(is_number) => {
                return Err(format!("'{{{inner}}}' is read in two ways; write '{{0{inner}}}'"));
            }
            _ => self.copy_escaped(),
        }
        Ok(())
    }
}

/// How long the `[:name:]` is with which the text begins.
fn named_class_bytes(text: &str) -> Option<usize> {
    let (name, _) = text.strip_prefix("[:")?.split_once(":]")?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'^');
    is_name.then_some(name.len() + "[::]".len())
}

/// Whether this is what stands between the braces of a quantifier: `3`, `3,` or `3,5`.
fn is_count(inner: &str) -> bool {
    match inner.split_once(',') {
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
        None => is_number(inner),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Refuses what both dialects know and read differently.
struct ReadsDifferently;

impl ast::Visitor for ReadsDifferently {
    type Output = ();
    type Err = String;

    fn finish(self) -> Result<(), String> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            // To PCRE `a++` is possessive, to the other a repetition of a repetition.
            Ast::Repetition(outer) if matches!(*outer.ast, Ast::Repetition(_)) => {
                Err("it has a possessive quantifier or one quantifier behind another, \
                     which are not supported; leave one out"
                    .into())
            }
            // To PCRE the quantifier is on the last byte of the character.
            Ast::Repetition(outer) if matches!(&*outer.ast, Ast::Literal(literal) if !literal.c.is_ascii()) => {
                Err("it has a quantifier on a character beyond ASCII, which is read in two ways; \
                     put the character into '(?:' and ')'"
                    .into())
            }
            Ast::Flags(set) => check_flags(&set.flags),
            Ast::Group(group) => group.flags().map_or(Ok(()), check_flags),
            Ast::Literal(literal) => check_literal(literal),
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), String> {
        match item {
            ClassSetItem::Literal(literal) => check_literal(literal),
            ClassSetItem::Range(range) => check_literal(&range.start).and(check_literal(&range.end)),
            ClassSetItem::Bracketed(_) => Err("it has a class of an unknown name within brackets".into()),
            _ => Ok(()),
        }
    }
}

/// To PCRE `(?R)` is a recursion and `(?x)` leaves spaces within brackets alone.
fn check_flags(flags: &ast::Flags) -> Result<(), String> {
    let foreign = flags.items.iter().any(|item| {
        matches!(item.kind, FlagsItemKind::Flag(Flag::Unicode | Flag::CRLF | Flag::IgnoreWhitespace))
    });
    if foreign { Err(explain(&ast::ErrorKind::FlagUnrecognized)) } else { Ok(()) }
}

/// To PCRE `\v` is any vertical space.
fn check_literal(literal: &ast::Literal) -> Result<(), String> {
    match literal.kind {
        ast::LiteralKind::Special(SpecialLiteralKind::VerticalTab) => {
            Err("'\\v' is read in two ways; write '\\x0b' for the vertical tab".into())
        }
        _ => Ok(()),
    }
}
