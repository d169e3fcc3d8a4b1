//! Patterns mean what they mean to PCRE, or are refused.

use proptest::prelude::*;
use weir_model::access::PATTERN_BYTES_MAX;

use crate::pattern::{Pattern, check_pattern, check_topic_pattern, expand};

fn matches(pattern: &str, name: &str) -> bool {
    Pattern::new(pattern.into()).matches(name.as_bytes())
}

/// A pattern, names that it matches, and names that it does not.
type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

const ROWS: &[Row] = &[
    // RabbitMQ's own examples.
    (".*", &["", "anything", "two\nlines"], &[]),
    ("", &[""], &["a", "amq.default"]),
    ("^$", &[""], &["a"]),
    ("^(amq\\.gen.*|amq\\.default)$", &["amq.gen-x", "amq.default"], &["amq.direct", "my.amq.default"]),
    // Unanchored, case-sensitive, and any byte but a line feed for a dot.
    ("orders", &["orders", "my-orders-2"], &["Orders", "order"]),
    ("^a.c$", &["abc", "a/c"], &["a\nc", "abcd"]),
    ("^...$", &["abc", "aé"], &["é", "ab"]),
    ("(?i)^orders$", &["ORDERS", "oRders"], &["orders2"]),
    ("^(?:a|b)+?$", &["ab"], &["", "abc"]),
    ("^[[:alpha:]_]+$", &["a_b"], &["a1", ""]),
    ("^\\d{2,3}$", &["12", "123"], &["1", "1234", "٣٣"]),
    ("^\\w+\\s\\W$", &["ab -"], &["é -"]),
    ("\\bshop\\b", &["my-shop"], &["workshop"]),
    ("^größe$", &["größe"], &["grosse"]),
    ("^(?:é){2}$", &["éé"], &["é"]),
    ("^\\x{41}\\x42$", &["AB"], &["ab"]),
    ("^\\xc3\\xa9$", &["é"], &["\u{c3}\u{a9}"]),
    ("\\Aone\\z", &["one"], &["one two"]),
    ("^(?<part>a)$", &["a"], &["b"]),
    // What PCRE takes literally and the other dialect does not.
    ("^{a}$", &["{a}"], &["a"]),
    ("^\\<[\\<\\>]\\>$", &["<<>", "<>>"], &["a", "<a>"]),
    ("^a{b$", &["a{b"], &["ab"]),
    ("^a{1,b}$", &["a{1,b}"], &["a"]),
    ("^x{2}{}$", &["xx{}"], &["xx"]),
    ("^{client_id}-.*", &["{client_id}-1"], &["client_id-1"]),
    ("^\\b{start}$", &[], &["{start}", "start"]),
    ("^[a[b]$", &["a", "[", "b"], &["ab"]),
    ("^[a&&b]$", &["a", "&", "b"], &[]),
    ("^[a~~b]$", &["a", "~"], &[]),
    ("^[]a]$", &["]", "a"], &["[]a]"]),
    ("^[^]a]$", &["b"], &["]", "a"]),
    ("^[\\]{}]$", &["]", "{", "}"], &["\\"]),
    ("^[a-z-9]+$", &["b-9"], &["8"]),
    ("a]b}c", &["a]b}c"], &[]),
    // Which a backtracking matcher would take years for.
    ("^(a+)+$", &["aaaa"], &["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"]),
];

#[test]
fn patterns_match_as_pcre_does() {
    for (pattern, matching, others) in ROWS {
        assert_eq!(check_pattern(pattern), Ok(()), "{pattern}");
        for name in *matching {
            assert!(matches(pattern, name), "{pattern} should match {name:?}");
        }
        for name in *others {
            assert!(!matches(pattern, name), "{pattern} should not match {name:?}");
        }
    }
}

/// Patterns, and what their refusal says.
const REFUSED: &[(&str, &str)] = &[
    ("^(?!amq\\.).*", "looks ahead or behind"),
    ("(?=a)", "looks ahead or behind"),
    ("(?<=a)b", "looks ahead or behind"),
    ("(?<!a)b", "looks ahead or behind"),
    ("(a)\\1", "refers back"),
    ("(?P=name)", "only '(?:'"),
    ("(?>a+)b", "only '(?:'"),
    ("(?|a|b)", "only '(?:'"),
    ("(?#remark)a", "only '(?:'"),
    ("(?1)", "only '(?:'"),
    ("a(?R)b", "only '(?:'"),
    ("(?x)a b", "only '(?:'"),
    ("(?-u)a", "only '(?:'"),
    ("(?u:a)", "only '(?:'"),
    ("a++", "possessive"),
    (".*+b", "possessive"),
    ("a{2}+", "possessive"),
    ("aé?", "beyond ASCII"),
    ("a\\v", "read in two ways"),
    ("[\\v]", "read in two ways"),
    ("[+--]", "read in two ways"),
    ("a{,3}", "write '{0,3}'"),
    ("[[:nonsense:]]", "unknown name"),
    ("\\Qa.b\\E", "unrecognized escape"),
    ("\\Z", "unrecognized escape"),
    ("\\p{Lu}", ""),
    ("[é]", "Unicode not allowed"),
    ("*", "missing expression"),
    ("(a", "unclosed group"),
    ("a)", "unopened group"),
    ("[a", "unclosed character class"),
    ("\\", "incomplete escape"),
    ("(?:a{999}){999}", "too large"),
];

#[test]
fn what_would_mean_something_else_is_refused() {
    for (pattern, why) in REFUSED {
        let refused = check_pattern(pattern).expect_err(pattern);
        assert!(refused.why.contains(why), "{refused}");
        assert!(!refused.why.contains('\n'), "{refused}");
        // Should one have been stored nevertheless, it gives nothing.
        assert!(!matches(pattern, pattern) && !matches(pattern, ""), "{pattern}");
    }
}

#[test]
fn a_pattern_that_is_too_long_is_not_repeated_in_full() {
    let longest = "a".repeat(PATTERN_BYTES_MAX);
    assert_eq!(check_pattern(&longest), Ok(()));
    let refused = check_pattern(&"a".repeat(PATTERN_BYTES_MAX + 1)).unwrap_err().to_string();
    assert!(refused.contains("1025 bytes long; at most 1024") && refused.len() < 400, "{refused}");
}

#[test]
fn nesting_is_bounded() {
    let nested = format!("{}a{}", "(".repeat(300), ")".repeat(300));
    assert!(check_pattern(&nested).is_err());
}

#[test]
fn names_in_topic_patterns_are_taken_literally() {
    let pattern = expand("^{username}@{vhost}-{username}\\.", ".*", "a|b");
    assert!(matches(&pattern, ".*@a|b-.*.key"));
    assert!(!matches(&pattern, "x@a-x.key"));
    assert_eq!(check_topic_pattern("^{username}$", "(", "/"), Ok(()));
    let refused = check_topic_pattern("(?!{username})", "ann", "/").unwrap_err();
    assert_eq!(refused.pattern, "(?!ann)");
}

proptest! {
    #[test]
    fn any_pattern_is_compiled_or_refused(
        pattern in "[-a-c.*+?(){}\\[\\]|^$\\\\,:&~xbd0-3<>é]{0,24}",
        name in ".{0,20}",
    ) {
        let usable = check_pattern(&pattern).is_ok();
        let matched = matches(&pattern, &name);
        prop_assert!(usable || !matched);
    }

    #[test]
    fn any_bytes_are_compiled_or_refused(pattern in any::<String>(), name in any::<String>()) {
        let _ = check_pattern(&pattern);
        let _ = matches(&pattern, &name);
    }

    #[test]
    fn a_user_is_matched_by_the_own_name_alone(user in "\\PC{1,12}", other in "\\PC{1,12}") {
        let pattern = expand("^{username}$", &user, "/");
        prop_assert_eq!(check_topic_pattern("^{username}$", &user, "/"), Ok(()));
        prop_assert!(matches(&pattern, &user));
        prop_assert_eq!(matches(&pattern, &other), user == other);
    }
}
