//! What is wrong with a configuration.

use std::fmt;

/// A configuration that is refused: which key, what was given, what would be right.
///
/// Source: Kafka `ConfigException` and `InvalidConfigurationException`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no such key. Remove it, or correct its spelling.
    UnknownKey {
        /// The key as given.
        key: String,
        /// Its value as given.
        value: String,
        /// Which keys it may mean, or what became of this one.
        allowed: String,
    },
    /// The value is not of the key's type, or outside its range.
    InvalidValue {
        /// The key.
        key: String,
        /// The value as given.
        value: String,
        /// What the key takes.
        allowed: String,
    },
    /// Two values, each allowed, that do not go together.
    Conflict {
        /// The key that is refused.
        key: String,
        /// Its value.
        value: String,
        /// The relation that must hold, with the other key and its value.
        allowed: String,
    },
}

impl ConfigError {
    pub(crate) fn invalid(key: &str, value: impl fmt::Display, allowed: impl fmt::Display) -> ConfigError {
        ConfigError::InvalidValue {
            key: key.to_owned(),
            value: value.to_string(),
            allowed: allowed.to_string(),
        }
    }

    /// The key that is refused.
    pub fn key(&self) -> &str {
        match self {
            ConfigError::UnknownKey { key, .. }
            | ConfigError::InvalidValue { key, .. }
            | ConfigError::Conflict { key, .. } => key,
        }
    }

    /// Kafka's name for this error.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            ConfigError::UnknownKey { .. } | ConfigError::Conflict { .. } => "InvalidConfigurationException",
            ConfigError::InvalidValue { .. } => "ConfigException",
        }
    }

    /// The same error under the name by which the value was given.
    pub(crate) fn renamed(mut self, name: &str) -> ConfigError {
        match &mut self {
            ConfigError::UnknownKey { key, .. }
            | ConfigError::InvalidValue { key, .. }
            | ConfigError::Conflict { key, .. } => *key = name.to_owned(),
        }
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::UnknownKey { key, value, allowed } => {
                write!(f, "unknown configuration key {key} (given as {key}={value}): {allowed}")
            }
            ConfigError::InvalidValue { key, value, allowed } => {
                write!(f, "{key}={value} is refused: it takes {allowed}")
            }
            ConfigError::Conflict { key, value, allowed } => {
                write!(f, "{key}={value} is refused: {allowed}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}
