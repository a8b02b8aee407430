//! The arguments of a task: switches, options with a value, and the rest by position.
//!
//! Each question takes what it recognises out of the list; [`Flags::finish`] refuses whatever nobody asked for.

/// What is left of a command line.
#[derive(Debug)]
pub(crate) struct Flags {
    rest: Vec<String>,
}

impl Flags {
    pub(crate) fn new(rest: Vec<String>) -> Flags {
        Flags { rest }
    }

    /// Whether help was asked for.
    pub(crate) fn help(&mut self) -> bool {
        self.switch("--help") | self.switch("-h")
    }

    /// Takes `name` out; true if it was there.
    pub(crate) fn switch(&mut self, name: &str) -> bool {
        let before = self.rest.len();
        self.rest.retain(|argument| argument != name);
        self.rest.len() < before
    }

    /// Takes `name VALUE` or `name=VALUE` out.
    ///
    /// # Errors
    /// The option stands at the end, without a value.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(at) = self
            .rest
            .iter()
            .position(|a| a == name || a.strip_prefix(name).is_some_and(|r| r.starts_with('=')))
        else {
            return Ok(None);
        };
        let argument = self.rest.remove(at);
        if let Some((_, value)) = argument.split_once('=') {
            return Ok(Some(value.to_owned()));
        }
        if at == self.rest.len() {
            return Err(format!("{name} wants a value"));
        }
        Ok(Some(self.rest.remove(at)))
    }

    /// Takes `name NUMBER` out.
    ///
    /// # Errors
    /// No value, or one that is no number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        self.value(name)?
            .map(|v| v.parse().map_err(|_| format!("{name} wants a number, not {v}")))
            .transpose()
    }

    /// Takes the first argument that is no option.
    pub(crate) fn positional(&mut self) -> Option<String> {
        let at = self.rest.iter().position(|a| !a.starts_with('-'))?;
        Some(self.rest.remove(at))
    }

    /// # Errors
    /// Arguments are left that no task has asked for.
    pub(crate) fn finish(self) -> Result<(), String> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("unknown arguments: {}", self.rest.join(" "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::Flags;

    fn flags(line: &str) -> Flags {
        Flags::new(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_are_taken_in_any_order() {
        let mut f = flags("--story epochs crate --fast --rounds=3");
        assert!(f.switch("--fast"));
        assert_eq!(f.value("--story").unwrap().as_deref(), Some("epochs"));
        assert_eq!(f.number("--rounds").unwrap(), Some(3));
        assert_eq!(f.positional().as_deref(), Some("crate"));
        f.finish().unwrap();
    }

    #[test]
    fn what_nobody_asked_for_is_refused() {
        assert!(flags("--nonsense").finish().is_err());
        assert!(flags("--rounds x").number("--rounds").is_err());
        assert!(flags("--story").value("--story").is_err());
    }
}
