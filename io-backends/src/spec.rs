//! [`BackendSpec`]: an engine as a value, from text and to text.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::backend::Backend;
use crate::memory::MemoryBackend;
use crate::std_file::StdBackend;

/// Which engine, as it is named on a command line: `std`, `memory`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendSpec {
    /// Files of the operating system through the page cache. The default.
    #[default]
    Std,
    /// Files in this process's memory, for as long as the backend lives.
    Memory,
}

impl BackendSpec {
    /// Every engine there is, in the order in which comparisons list them.
    pub const ALL: &'static [BackendSpec] = &[BackendSpec::Std, BackendSpec::Memory];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            BackendSpec::Std => "std",
            BackendSpec::Memory => "memory",
        }
    }

    /// A backend of this kind. Each of `memory` begins empty.
    pub fn open(self) -> Arc<dyn Backend> {
        match self {
            BackendSpec::Std => Arc::new(StdBackend::new()),
            BackendSpec::Memory => Arc::new(MemoryBackend::new()),
        }
    }
}

impl FromStr for BackendSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let known = |spec: &&BackendSpec| spec.name() == text;
        BackendSpec::ALL.iter().find(known).copied().ok_or_else(|| SpecError { given: text.to_owned() })
    }
}

impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The backend that `spec` names.
///
/// # Errors
/// A name that no engine has; the message lists those there are.
pub fn open(spec: &str) -> Result<Arc<dyn Backend>, SpecError> {
    Ok(spec.parse::<BackendSpec>()?.open())
}

/// No engine has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpecError {
    /// The text that names none.
    pub given: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no backend is called {:?}; there are", self.given)?;
        for (index, spec) in BackendSpec::ALL.iter().enumerate() {
            write!(f, "{}{spec}", if index == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl Error for SpecError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_found_by_the_name_it_prints() {
        for spec in BackendSpec::ALL {
            assert_eq!(spec.to_string().parse(), Ok(*spec));
            assert_eq!(open(spec.name()).unwrap().name(), spec.name());
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_names_there_are() {
        for text in ["", "posix", "STD", " std", "std+direct"] {
            let error = open(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("std, memory"), "{error}");
        }
    }
}
