//! [`Options`] of a backend's specification.

use std::fmt;
use std::str::FromStr;

use crate::spec::{Cache, Engine};

/// What can be set behind a backend's name: `key=value`, separated by commas. Sizes are bytes, with `k` or `m` behind
/// them for KiB or MiB. What is not set is as the engine likes it best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Options {
    /// `depth`: writes of one file in flight at a time. 1 to 1024; engine `uring`. Default: 8.
    pub depth: Option<u32>,
    /// `entries`: of the ring's submission queue. 1 to 32768; engine `uring`. Default: 64.
    pub entries: Option<u32>,
    /// `inline`: writes through the page cache of fewer bytes are done by the thread that asks for them, as by `std`: they would be
    /// handed to a thread of the kernel, which costs more than they do. 0 for none. At most 64m; engine `uring` without
    /// `direct`, which does so with what is smaller than 16k and than a chunk. Default: 64k.
    pub inline: Option<u32>,
    /// `registered`: `off` for a ring without registered files and buffers. Engine `uring`. Default: on, where the kernel has
    /// them.
    pub registered: Option<bool>,
    /// `chunk`: bytes of one write at most; with `direct` also how many are gathered before a write begins by itself.
    /// 4k to 64m. Default: 128k with `direct`, else 1m; engine `uring` or `direct`.
    pub chunk: Option<u32>,
    /// `tail`: bytes that stay in memory for readers beside the writer. 0 to 1024m. Default: 1m; with `direct`.
    pub tail: Option<u32>,
    /// `preallocate`: blocks are taken ahead in steps of so many bytes; the file's length stays exact. 0 for none. At
    /// most 1024m. Default: through the page cache on ext4 a quarter of what the file holds, from 8 MiB on and at most 16m, while
    /// no flush comes within such a step; writes go faster into blocks that are there. `uring` also takes them, 1m elsewhere, for
    /// what is not written at once, whose place on the disk must be sure. With `direct` it is 16m, by which the length goes ahead
    /// between two flushes; where flushes come often, and each cuts the file, none are taken. Else none. What is not used goes
    /// back when the file is sealed or closed.
    pub preallocate: Option<u32>,
    /// `zeroed`: zeros are written ahead in steps of so many bytes, so that small durable appends change no metadata. The
    /// file is longer than its contents until it is sealed. 4k to 1024m; not with `preallocate`. Default: none.
    pub zeroed: Option<u32>,
    /// `dsync`: `on` for writes that are each durable by themselves, `RWF_DSYNC`. Default: off.
    pub dsync: Option<bool>,
    /// `writebehind`: the kernel is told to begin writing back after so many bytes. 64k to 1024m; not with `direct`.
    /// Default: never.
    pub write_behind: Option<u32>,
}

const GIB: u32 = 1 << 30;

impl Options {
    /// Whether an engine has a use for what is set.
    pub(crate) fn suit(&self, engine: Engine, cache: Cache) -> Result<(), String> {
        let (uring, direct) = (engine == Engine::Uring, cache == Cache::Direct);
        let auto = engine == Engine::Auto;
        let files = engine != Engine::Memory;
        let misplaced = [
            ("depth", self.depth.is_some(), uring || auto, "uring"),
            ("entries", self.entries.is_some(), uring || auto, "uring"),
            ("inline", self.inline.is_some(), uring && !direct, "uring without direct"),
            ("registered", self.registered.is_some(), uring || auto, "uring"),
            ("chunk", self.chunk.is_some(), uring || direct || auto, "uring or direct"),
            ("tail", self.tail.is_some(), direct || auto, "direct"),
            ("preallocate", self.preallocate.is_some(), files, "files"),
            (
                "zeroed",
                self.zeroed.is_some(),
                files && self.preallocate.is_none(),
                "files without preallocate",
            ),
            ("dsync", self.dsync.is_some(), files, "files"),
            ("writebehind", self.write_behind.is_some(), files && !direct && !auto, "files without direct"),
        ];
        match misplaced.into_iter().find(|(_, set, suits, _)| *set && !suits) {
            Some((key, .., with)) => Err(format!("{key} does not go with the rest of it, only with {with}")),
            None => Ok(()),
        }
    }

    /// Those that an engine has a use for.
    pub(crate) fn suiting(&self, engine: Engine, cache: Cache) -> Options {
        let text = self.to_string();
        text.split(',').skip(1).fold(Options::default(), |kept, item| {
            let mut more = kept;
            let suits = more.set(item).and_then(|()| more.suit(engine, cache));
            if suits.is_ok() { more } else { kept }
        })
    }

    /// Whether the option of this name is set.
    fn has(&self, key: &str) -> bool {
        self.to_string().split(',').any(|item| item.split_once('=').is_some_and(|(other, _)| other == key))
    }

    fn set(&mut self, item: &str) -> Result<(), String> {
        let (key, value) = item.split_once('=').ok_or_else(|| format!("{item:?} is not key=value"))?;
        if self.has(key) {
            return Err(format!("{key} is given twice"));
        }
        let number = |from: u32, to: u32| Some(in_range(value, from, to)).transpose();
        let switch = || match value {
            "on" => Ok(Some(true)),
            "off" => Ok(Some(false)),
            _ => Err(format!("{key} is on or off, not {value:?}")),
        };
        match key {
            "depth" => self.depth = number(1, 1024)?,
            "entries" => self.entries = number(1, 32_768)?,
            "inline" => self.inline = number(0, 64 << 20)?,
            "registered" => self.registered = switch()?,
            "chunk" => self.chunk = number(4 << 10, 64 << 20)?,
            "tail" => self.tail = number(0, GIB)?,
            "preallocate" => self.preallocate = number(0, GIB)?,
            "zeroed" => self.zeroed = number(4 << 10, GIB)?,
            "writebehind" => self.write_behind = number(64 << 10, GIB)?,
            "dsync" => self.dsync = switch()?,
            _ => {
                let known = "depth, entries, inline, registered, chunk, tail, preallocate, zeroed, dsync, writebehind";
                return Err(format!("no option is called {key:?}; there are {known}"));
            }
        }
        Ok(())
    }
}

/// A number with an optional `k` or `m`.
fn in_range(value: &str, from: u32, to: u32) -> Result<u32, String> {
    let (digits, unit) = match value.as_bytes().last() {
        Some(b'k') => (&value[..value.len() - 1], 1 << 10),
        Some(b'm') => (&value[..value.len() - 1], 1 << 20),
        _ => (value, 1),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u32>().ok().filter(|_| plain).and_then(|number| number.checked_mul(unit));
    number
        .filter(|number| (from..=to).contains(number))
        .ok_or_else(|| format!("{value:?} is not a number from {} to {}", Size(from), Size(to)))
}

/// A number of bytes, as it is written in a specification.
struct Size(u32);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{}m", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => write!(f, "{}k", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for Options {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Options::default();
        text.split(',').try_for_each(|item| options.set(item))?;
        Ok(options)
    }
}

impl fmt::Display for Options {
    /// Nothing, or each option that is set with a comma before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, count) in [("depth", self.depth), ("entries", self.entries)] {
            if let Some(count) = count {
                write!(f, ",{key}={count}")?;
            }
        }
        let sizes = [
            ("inline", self.inline),
            ("chunk", self.chunk),
            ("tail", self.tail),
            ("preallocate", self.preallocate),
            ("zeroed", self.zeroed),
            ("writebehind", self.write_behind),
        ];
        for (key, bytes) in sizes {
            if let Some(bytes) = bytes {
                write!(f, ",{key}={}", Size(bytes))?;
            }
        }
        for (key, on) in [("registered", self.registered), ("dsync", self.dsync)] {
            if let Some(on) = on {
                write!(f, ",{key}={}", if on { "on" } else { "off" })?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::spec::BackendSpec;

    #[test]
    fn options_print_as_they_parse() {
        for text in [
            "std,preallocate=16m",
            "std,zeroed=1m,dsync=on",
            "std,writebehind=1m",
            "std+direct,chunk=64k,tail=0",
            "uring,depth=16,entries=8,chunk=1000k,dsync=off",
            "uring+direct,depth=4,preallocate=0",
            "auto,zeroed=4k",
            "uring,depth=1023,entries=32,chunk=5000",
            "uring,inline=0,registered=off",
            "uring+direct,chunk=1m,registered=on,dsync=on",
        ] {
            assert_eq!(text.parse::<BackendSpec>().unwrap().to_string(), text);
        }
        let odd = "std,zeroed=1024k".parse::<BackendSpec>().unwrap();
        assert_eq!(odd.to_string(), "std,zeroed=1m");
        assert_eq!(odd.to_string().parse(), Ok(odd));
    }

    #[test]
    fn what_means_nothing_is_refused_with_a_reason() {
        for (text, reason) in [
            ("std,", "is not key=value"),
            ("std,depth", "is not key=value"),
            ("std,depth=4", "depth does not go"),
            ("memory,zeroed=1m", "zeroed does not go"),
            ("std,preallocate=1m,zeroed=1m", "zeroed does not go"),
            ("std,tail=1m", "tail does not go"),
            ("std,depth=4", "only with uring"),
            ("uring,depth=4,depth=8", "depth is given twice"),
            ("std,zeroed=1m,dsync=on,zeroed=1m", "zeroed is given twice"),
            ("uring,depth=0", "from 1 to 1k"),
            ("uring,depth=1025", "from 1 to 1k"),
            ("uring,depth=+4", "is not a number"),
            ("uring,depth=", "is not a number"),
            ("uring,depth=k", "is not a number"),
            ("uring,entries=4294967296", "is not a number"),
            ("std,zeroed=4194304k", "from 4k to 1024m"),
            ("std,zeroed=1g", "is not a number"),
            ("std,dsync=yes", "dsync is on or off"),
            ("uring,registered=1", "registered is on or off"),
            ("std,registered=off", "registered does not go"),
            ("uring+direct,inline=4k", "inline does not go"),
            ("auto,inline=4k", "inline does not go"),
            ("std,linger=4", "there are depth"),
        ] {
            let error = text.parse::<BackendSpec>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
