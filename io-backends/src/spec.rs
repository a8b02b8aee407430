//! [`BackendSpec`]: an engine with its options as a value, from text and to text.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::backend::Backend;
use crate::error::IoError;
use crate::memory::MemoryBackend;
use crate::options::Options;
use crate::plan::{AppendPlan, Space};
use crate::probe::{self, Unavailable};
use crate::std_file::{FileModes, StdBackend};

/// Flushes of fewer bytes go through the page cache as they are, where others go past it: a block that is padded costs a
/// cut and a sync of the length, which is more than the copy.
const UNALIGNED_MAX: u32 = 64 << 10;

/// Who does the work of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Files of the operating system; each call is done by the thread that asks for it. The default.
    #[default]
    Std,
    /// Files of the operating system, written through an io_uring.
    Uring,
    /// Files in this process's memory, for as long as the backend lives.
    Memory,
    /// The best of the others that can be had where the files are: `uring+direct`, else `std+direct`, else `std`.
    Auto,
}

/// What written bytes do to the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cache {
    /// They go through it and stay. The default.
    #[default]
    Buffered,
    /// They go past it: O_DIRECT.
    Direct,
    /// They go through it and leave it: `RWF_DONTCACHE`.
    DontCache,
}

/// Which engine, and how: what a command line names.
///
/// It parses from, and prints as, an engine's name, `+` and a cache mode, and options behind commas:
/// `std`, `std+direct`, `std+dontcache`, `uring`, `uring+direct,depth=16`, `memory`, `auto`. See [`Options`].
///
/// ```
/// use kseg_io_backends::BackendSpec;
///
/// let spec: BackendSpec = "uring+direct,depth=16,zeroed=1m".parse().unwrap();
/// assert_eq!(spec.options.depth, Some(16));
/// assert_eq!(spec.to_string(), "uring+direct,depth=16,zeroed=1m");
/// assert!("std,depth=0".parse::<BackendSpec>().is_err());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct BackendSpec {
    /// Who does the work.
    pub engine: Engine,
    /// What becomes of the page cache.
    pub cache: Cache,
    /// The rest.
    pub options: Options,
}

/// Names, engines and cache modes, in the order in which comparisons list them.
const NAMES: [(&str, Engine, Cache); 8] = [
    ("std", Engine::Std, Cache::Buffered),
    ("std+direct", Engine::Std, Cache::Direct),
    ("std+dontcache", Engine::Std, Cache::DontCache),
    ("uring", Engine::Uring, Cache::Buffered),
    ("uring+direct", Engine::Uring, Cache::Direct),
    ("uring+dontcache", Engine::Uring, Cache::DontCache),
    ("memory", Engine::Memory, Cache::Buffered),
    ("auto", Engine::Auto, Cache::Buffered),
];

/// A backend, and what it is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Opened {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// What it is: the same as was asked for, but for `auto`.
    pub got: BackendSpec,
    /// What `auto` could not have before it took this, in the order of its wishes.
    pub passed_over: Vec<(BackendSpec, SpecError)>,
}

impl BackendSpec {
    /// The specifications without options that there are, in the order in which comparisons list them.
    pub fn all() -> impl Iterator<Item = BackendSpec> {
        NAMES.iter().map(|(_, engine, cache)| BackendSpec::new(*engine, *cache))
    }

    /// An engine and a cache mode, without options.
    pub fn new(engine: Engine, cache: Cache) -> Self {
        Self { engine, cache, options: Options::default() }
    }

    /// Many specifications, separated by commas as their options are: `std,uring+direct,depth=16,memory` are three.
    ///
    /// # Errors
    /// Of the first that is none.
    pub fn parse_list(text: &str) -> Result<Vec<BackendSpec>, SpecError> {
        let mut each: Vec<String> = Vec::new();
        for item in text.split(',').map(str::trim) {
            match each.last_mut() {
                Some(last) if item.contains('=') => {
                    last.push(',');
                    last.push_str(item);
                }
                _ => each.push(item.to_owned()),
            }
        }
        each.iter().map(|item| item.parse()).collect()
    }

    /// A backend of this kind, for files in the current directory and on file systems like its. Each of `memory` begins
    /// empty.
    ///
    /// # Errors
    /// As [`open_in`](Self::open_in), but that nothing is known of the file system.
    pub fn open(self) -> Result<Opened, SpecError> {
        self.open_at(None)
    }

    /// A backend of this kind, for files below `dir`, which is asked what it can do; its nearest parent, if it is not
    /// there yet. Each of `memory` begins empty.
    ///
    /// # Errors
    /// What was asked for by name cannot be had here: [`SpecError::unavailable`] says why, and what would help. `auto`
    /// takes the next best instead, without the options that it has no use for: [`Opened::got`] says which it has. A value that
    /// no text stands for, as one with an option that does not go with the rest of it.
    pub fn open_in(self, dir: &Path) -> Result<Opened, SpecError> {
        self.open_at(Some(dir))
    }

    fn open_at(self, dir: Option<&Path>) -> Result<Opened, SpecError> {
        // The fields can be set to what no text says: nothing of that is passed over in silence.
        self.to_string().parse::<BackendSpec>()?;
        if self.engine != Engine::Auto {
            let backend = self.make(dir)?;
            return Ok(Opened { backend, got: self, passed_over: Vec::new() });
        }
        let wishes =
            [(Engine::Uring, Cache::Direct), (Engine::Std, Cache::Direct), (Engine::Std, Cache::Buffered)];
        let mut passed_over = Vec::new();
        for (engine, cache) in wishes {
            let got = BackendSpec { engine, cache, options: self.options.suiting(engine, cache) };
            match got.make(Some(dir.unwrap_or(Path::new(".")))) {
                Ok(backend) => return Ok(Opened { backend, got, passed_over }),
                Err(error) => passed_over.push((got, error)),
            }
        }
        Err(passed_over.pop().expect("wishes were refused").1)
    }

    fn make(self, dir: Option<&Path>) -> Result<Arc<dyn Backend>, SpecError> {
        let modes = self.modes();
        let refused =
            |unavailable| SpecError { given: self.to_string(), why: Why::Unavailable(unavailable, None) };
        if let Some(dir) = dir.filter(|_| modes.direct || modes.dont_cache) {
            probe::directory(dir, modes.direct, modes.dont_cache).map_err(|error| self.no_place(error))?;
        }
        match self.engine {
            Engine::Std | Engine::Auto => Ok(Arc::new(StdBackend::with(self.to_string(), modes))),
            #[cfg(target_os = "linux")]
            Engine::Uring => {
                let entries = self.options.entries.unwrap_or(64);
                let inline = u64::from(self.inline());
                let registered = self.options.registered.unwrap_or(true);
                let setup = crate::uring::Setup { entries, inline, registered };
                let backend = crate::uring::UringBackend::with(self.to_string(), modes, setup);
                Ok(Arc::new(backend.map_err(refused)?))
            }
            #[cfg(not(target_os = "linux"))]
            Engine::Uring => Err(refused(Unavailable {
                what: "io_uring",
                probe: "the operating system",
                errno: None,
                remedy: "it takes Linux",
            })),
            Engine::Memory => Ok(Arc::new(MemoryBackend::new())),
        }
    }

    #[cold]
    fn no_place(self, error: IoError) -> SpecError {
        let unavailable = error.io_error().get_ref().and_then(|error| error.downcast_ref::<Unavailable>());
        let why = match unavailable {
            Some(unavailable) => {
                Why::Unavailable(unavailable.clone(), error.path().parent().map(PathBuf::from))
            }
            None => Why::Place(error.to_string()),
        };
        SpecError { given: self.to_string(), why }
    }

    /// Writes through the page cache of fewer bytes are done by who asks for them.
    fn inline(self) -> u32 {
        self.options.inline.unwrap_or(64 << 10)
    }

    /// How files of this kind are opened.
    pub(crate) fn modes(self) -> FileModes {
        FileModes {
            direct: self.cache == Cache::Direct,
            dont_cache: self.cache == Cache::DontCache,
            plan: self.plan(),
        }
    }

    /// How files of this kind are appended to.
    fn plan(self) -> AppendPlan {
        let Options { depth, chunk, tail, preallocate, zeroed, dsync, write_behind, .. } = self.options;
        let direct = self.cache == Cache::Direct;
        let through = dsync == Some(true);
        let base = match (self.engine, direct) {
            (_, true) => AppendPlan {
                space: Space::Ahead(16 << 20),
                depth: if self.engine == Engine::Uring { 8 } else { 1 },
                chunk: 128 << 10,
                tail: 1 << 20,
                ..AppendPlan::PLAIN
            },
            (engine, false) => {
                // What is durable by itself is like a flush each time.
                let space = if through { Space::Queued(1 << 20) } else { Space::Grown(16 << 20) };
                let (depth, chunk) = if engine == Engine::Uring { (8, 1 << 20) } else { (1, 1 << 30) };
                AppendPlan { space, depth, chunk, ..AppendPlan::PLAIN }
            }
        };
        let space = match (preallocate, zeroed) {
            (_, Some(step)) => Space::Zeroed(step),
            (Some(0), None) => Space::None,
            (Some(step), None) => Space::Blocks(step),
            (None, None) => base.space,
        };
        let chunk = chunk.unwrap_or(base.chunk);
        let inline = self.engine == Engine::Uring && self.cache == Cache::Buffered && !through;
        // Zeros that stay ahead are what a block is padded with: nothing is cut off there.
        let padded = !direct || matches!(space, Space::Zeroed(_));
        AppendPlan {
            space,
            depth: depth.unwrap_or(base.depth),
            chunk,
            tail: tail.unwrap_or(base.tail),
            at_once: if inline { self.inline() } else { 0 },
            unaligned: if padded { 0 } else { UNALIGNED_MAX.min(chunk) },
            through,
            write_behind: write_behind.unwrap_or(base.write_behind),
        }
    }
}

impl FromStr for BackendSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = |why| SpecError { given: text.to_owned(), why };
        let (name, options) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let (_, engine, cache) =
            NAMES.iter().find(|(known, ..)| *known == name).ok_or_else(|| wrong(Why::Name))?;
        let options = match options {
            Some(options) => options.parse().map_err(|why| wrong(Why::Option(why)))?,
            None => Options::default(),
        };
        let spec = BackendSpec { engine: *engine, cache: *cache, options };
        options.suit(*engine, *cache).map_err(|why| wrong(Why::Option(why)))?;
        Ok(spec)
    }
}

impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |cache| {
            NAMES.iter().find(move |(_, e, c)| (*e, *c) == (self.engine, cache)).map(|(name, ..)| *name)
        };
        let name = named(self.cache).or_else(|| named(Cache::Buffered)).unwrap_or_default();
        let cache = match (named(self.cache), self.cache) {
            (Some(_), _) | (None, Cache::Buffered) => "",
            (None, Cache::Direct) => "+direct",
            (None, Cache::DontCache) => "+dontcache",
        };
        f.pad(&format!("{name}{cache}{}", self.options))
    }
}

/// The backend that `spec` names, for files in the current directory and on file systems like its.
///
/// # Errors
/// Text that names none, with the names there are; one that cannot be had here, with the reason.
pub fn open(spec: &str) -> Result<Arc<dyn Backend>, SpecError> {
    Ok(spec.parse::<BackendSpec>()?.open()?.backend)
}

/// No backend can be had for this text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpecError {
    /// The text.
    pub given: String,
    why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    Name,
    Option(String),
    /// In that directory, if it is a matter of one.
    Unavailable(Unavailable, Option<PathBuf>),
    Place(String),
}

impl SpecError {
    /// Where the text is right and the thing is not to be had here: the probe that said so, its error, and a remedy.
    pub fn unavailable(&self) -> Option<&Unavailable> {
        match &self.why {
            Why::Unavailable(unavailable, _) => Some(unavailable),
            _ => None,
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Name => {
                write!(f, "no backend is called {:?}; there are", self.given)?;
                for (index, (name, ..)) in NAMES.iter().enumerate() {
                    write!(f, "{}{name}", if index == 0 { " " } else { ", " })?;
                }
                Ok(())
            }
            Why::Option(why) => write!(f, "{}: {why}", self.given),
            Why::Unavailable(unavailable, None) => write!(f, "backend {}: {unavailable}", self.given),
            Why::Unavailable(unavailable, Some(dir)) => {
                write!(f, "backend {} in {}: {unavailable}", self.given, dir.display())
            }
            Why::Place(why) => write!(f, "backend {}: {why}", self.given),
        }
    }
}

impl Error for SpecError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.why {
            Why::Unavailable(unavailable, _) => Some(unavailable),
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_backend_is_found_by_the_name_it_prints() {
        for spec in BackendSpec::all() {
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
        for name in ["std", "memory"] {
            assert_eq!(open(name).unwrap().name(), name);
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_names_there_are() {
        for text in ["", "posix", "STD", " std", "std+", "memory+direct", "std direct"] {
            let error = open(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("std, std+direct"), "{error}");
        }
    }

    #[test]
    fn what_no_text_stands_for_is_not_opened() {
        for (engine, cache, name) in [
            (Engine::Memory, Cache::Direct, "memory+direct"),
            (Engine::Memory, Cache::DontCache, "memory+dontcache"),
            (Engine::Auto, Cache::Direct, "auto+direct"),
        ] {
            let error = BackendSpec::new(engine, cache).open().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        let options = [
            Options { depth: Some(4), ..Options::default() },
            Options { zeroed: Some(0), ..Options::default() },
            Options { zeroed: Some(4096), preallocate: Some(4096), ..Options::default() },
        ];
        for options in options {
            let spec = BackendSpec { options, ..BackendSpec::default() };
            assert!(spec.open().is_err(), "{spec}");
        }
    }

    #[test]
    fn options_of_a_list_stay_with_their_backend() {
        let list = BackendSpec::parse_list("std, uring+direct,depth=16,zeroed=1m,memory").unwrap();
        let texts: Vec<String> = list.iter().map(BackendSpec::to_string).collect();
        assert_eq!(texts, ["std", "uring+direct,depth=16,zeroed=1m", "memory"]);
        assert!(BackendSpec::parse_list("depth=16").is_err());
    }

    #[test]
    fn auto_takes_what_there_is_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let opened = "auto".parse::<BackendSpec>().unwrap().open_in(dir.path()).unwrap();
        assert_eq!(opened.backend.name(), opened.got.to_string());
        for (wish, error) in &opened.passed_over {
            assert_ne!(*wish, opened.got);
            assert!(error.unavailable().is_some(), "{error}");
        }
        // Of options that what it took has no use for nothing is said there.
        for text in [
            "auto,depth=16,chunk=64k,tail=0,registered=off,entries=8,zeroed=64k",
            "auto,preallocate=1m,dsync=on",
        ] {
            for dir in [dir.path(), Path::new("/dev/shm")].into_iter().filter(|dir| dir.exists()) {
                let opened = text.parse::<BackendSpec>().unwrap().open_in(dir).unwrap();
                assert_eq!(opened.got.to_string().parse(), Ok(opened.got), "{text}");
                assert_eq!(opened.backend.name(), opened.got.to_string());
            }
        }
        let later = "auto".parse::<BackendSpec>().unwrap().open_in(&dir.path().join("a/b")).unwrap();
        assert_eq!(later.got, opened.got);
    }
}
