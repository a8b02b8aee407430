//! The options of kafka-dump-log: long names only, `--name value` or `--name=value`, other arguments ignored.

use std::ffi::OsString;

use super::abort::Abort;

const FLAGS: &[(&str, &str)] = &[
    ("deep-iteration", "also list records"),
    ("print-data-log", "also print keys and payloads; implies --deep-iteration"),
    ("skip-record-metadata", "omit the metadata of record lines"),
    ("verify-index-only", "check index entries, print no entry lines"),
    ("index-sanity-check", "run only the basic check of an index file"),
    ("help", "print this text"),
    ("version", "print the version of Kafka that this stands for"),
];
const VALUES: &[(&str, &str)] = &[
    ("files", "REQUIRED: comma separated list of .log, .index and .timeindex files"),
    ("max-bytes", "read only this many bytes of a .log (default 2147483647)"),
    ("max-message-size", "bytes read at each entry of an .index (default 5242880)"),
];
const UNSUPPORTED: &[&str] = &[
    "key-decoder-class",
    "value-decoder-class",
    "offsets-decoder",
    "transaction-log-decoder",
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
    "share-group-state-decoder",
];

/// What to do with the command line.
#[derive(Debug)]
pub(super) enum Parsed {
    /// Print the usage text and fail.
    Usage {
        /// A sentence in front of it.
        why: String,
    },
    /// Print the version and succeed.
    Version,
    /// Dump the files.
    Run(Options),
}

/// A command line that can be run.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// The files in order, one of them possibly without a name.
    pub(super) files: Vec<String>,
    pub(super) deep: bool,
    pub(super) print: bool,
    pub(super) skip_metadata: bool,
    pub(super) verify_only: bool,
    pub(super) sanity_only: bool,
    max_bytes: Option<String>,
    max_message_size: Option<String>,
}

impl Options {
    /// Bytes of a log file to look at. Converted when it is first needed, as everything here is: a word instead of a
    /// number fails behind the lines that need none.
    pub(super) fn max_bytes(&self) -> Result<i32, Abort> {
        number("max-bytes", self.max_bytes.as_deref(), i32::MAX)
    }

    /// Bytes to read at the position of an index entry.
    pub(super) fn max_message_size(&self) -> Result<i32, Abort> {
        number("max-message-size", self.max_message_size.as_deref(), 5_242_880)
    }
}

/// Reads the command line.
pub(super) fn parse(args: &[OsString]) -> Result<Parsed, Abort> {
    let mut options = Options::default();
    let (mut files, mut help, mut version) = (Vec::new(), args.is_empty(), false);
    let mut max_bytes = Vec::new();
    let mut max_message_size = Vec::new();
    let mut args = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        if arg == "--" {
            break;
        }
        let Some(name) = arg.strip_prefix("--") else {
            if arg.len() > 1 && arg.starts_with('-') {
                return Err(unrecognized(&arg[1..]));
            }
            continue;
        };
        let (name, attached) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        if VALUES.iter().any(|(value, _)| *value == name) {
            let Some(value) = attached.or_else(|| args.next()) else {
                return Err(Abort::new(
                    "joptsimple.OptionMissingRequiredArgumentException",
                    format!("Option {name} requires an argument"),
                ));
            };
            match name {
                "files" => files.push(value),
                "max-bytes" => max_bytes.push(value),
                _ => max_message_size.push(value),
            }
            continue;
        }
        if UNSUPPORTED.contains(&name) {
            return Err(Abort::new("UnsupportedOperationException", format!("--{name} is not supported")));
        }
        match name {
            "deep-iteration" => options.deep = true,
            "print-data-log" => options.print = true,
            "skip-record-metadata" => options.skip_metadata = true,
            "verify-index-only" => options.verify_only = true,
            "index-sanity-check" => options.sanity_only = true,
            "help" => help = true,
            "version" => version = true,
            _ => return Err(unrecognized(name)),
        }
    }
    if help {
        let why = "This tool helps to parse a log file and dump its contents to the console, useful for debugging a \
                   seemingly corrupt log segment.";
        return Ok(Parsed::Usage { why: why.to_owned() });
    }
    if version {
        return Ok(Parsed::Version);
    }
    let Some(list) = single("files", files)? else {
        return Ok(Parsed::Usage { why: "Missing required argument \"[files]\"".to_owned() });
    };
    options.files = split(&list);
    options.deep |= options.print;
    options.max_bytes = single("max-bytes", max_bytes)?;
    options.max_message_size = single("max-message-size", max_message_size)?;
    Ok(Parsed::Run(options))
}

/// The table of options, a line each.
pub(super) fn usage() -> String {
    let mut text = String::new();
    for (name, about) in VALUES {
        text.push_str(&format!("  --{:<32}{about}\n", format!("{name} <VALUE>")));
    }
    for (name, about) in FLAGS {
        text.push_str(&format!("  --{name:<32}{about}\n"));
    }
    text
}

fn unrecognized(name: &str) -> Abort {
    Abort::new("joptsimple.UnrecognizedOptionException", format!("{name} is not a recognized option"))
}

fn single(name: &str, mut values: Vec<String>) -> Result<Option<String>, Abort> {
    if values.len() > 1 {
        return Err(Abort::new(
            "joptsimple.MultipleArgumentsForOptionException",
            format!("Found multiple arguments for option {name}, but you asked for only one"),
        ));
    }
    Ok(values.pop())
}

/// Splits at commas; items without text at the end are no items, unless there is nothing else at all.
fn split(list: &str) -> Vec<String> {
    let kept = list.trim_end_matches(',');
    if kept.is_empty() && !list.is_empty() {
        return Vec::new();
    }
    kept.split(',').map(str::to_owned).collect()
}

fn number(name: &str, value: Option<&str>, default: i32) -> Result<i32, Abort> {
    let Some(value) = value else { return Ok(default) };
    value.parse().map_err(|_| {
        Abort::new(
            "joptsimple.OptionArgumentConversionException",
            format!("Cannot parse argument '{value}' of option {name}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Options {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        match parse(&args) {
            Ok(Parsed::Run(options)) => options,
            other => panic!("not run: {other:?}"),
        }
    }

    #[test]
    fn items_without_text_count_in_the_middle_only() {
        assert_eq!(run(&["--files", "a,,b,,"]).files, ["a", "", "b"]);
        assert_eq!(run(&["--files", ""]).files, [""]);
        assert!(run(&["--files", ",,"]).files.is_empty());
    }

    #[test]
    fn printing_implies_records_and_other_arguments_are_ignored() {
        let options = run(&["stray", "--print-data-log", "--files=a"]);
        assert!(options.deep && options.print && !options.skip_metadata);
    }

    #[test]
    fn a_number_is_read_when_it_is_needed() {
        let options = run(&["--files", "a", "--max-bytes", "many"]);
        assert!(options.max_bytes().is_err());
        assert_eq!(options.max_message_size().expect("default"), 5_242_880);
    }
}
