//! Token files: a client that knows the content of one may use the page's port.
//!
//! Idea: a file that others can read or write proves nothing, so it is refused before it is read.
//! The checks are made on the open file, not on what its path may name a moment later.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use subtle::ConstantTimeEq;

/// Shortest token: fewer characters could be guessed.
const TOKEN_CHARS_MIN: usize = 16;
/// Longest one.
const TOKEN_CHARS_MAX: usize = 256;
/// Permissions of everyone but the file's owner.
const OTHERS: u32 = 0o077;

/// A token as it was read.
pub(super) struct Token(String);

impl Token {
    /// Whether `given` is this token. The time depends only on the length.
    pub(super) fn matches(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// Whether both are the same.
    pub(super) fn equals(&self, other: &Token) -> bool {
        self.matches(&other.0)
    }
}

/// Why a token file is not used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be opened or read.
    #[error("cannot read token file {}: {source}; make one with `{}`", .path.display(), make(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is a folder, a pipe or a device.
    #[error("token file {} is not a regular file: make one with `{}`", .0.display(), make(.0))]
    NotAFile(PathBuf),
    /// It belongs to another user.
    #[error(
        "token file {} belongs to user {owner}: expected root or the daemon's user; type \
         `chown {user} {}`", .path.display(), .path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user the daemon runs as.
        user: u32,
    },
    /// Others may read or write it.
    #[error(
        "token file {} has mode {mode:04o}, so others can read or change it: type `chmod 600 {}`",
        .path.display(), .path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its content is not a token.
    #[error(
        "token file {} holds no token of {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} printable characters \
         without spaces: make one with `{}`", .0.display(), make(.0)
    )]
    NoToken(PathBuf),
    /// Both files have the same content.
    #[error("token files {} and {} hold the same token: readers could act", .0.display(), .1.display())]
    Same(PathBuf, PathBuf),
}

/// The command with which an operator makes a token.
fn make(path: &Path) -> String {
    format!("(umask 077; head -c 32 /dev/urandom | sha256sum | cut -c-64 > {})", path.display())
}

/// Reads the token in the file `path`, which must belong to root or to `user`.
///
/// # Errors
/// The file is missing, belongs to another user, can be read by others, or has no token.
pub(super) fn read(path: &Path, user: u32) -> Result<Token, TokenError> {
    let failed = |source| TokenError::Io { path: path.to_owned(), source };
    // Opening a pipe in its place must not block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(TokenError::NotAFile(path.to_owned()));
    }
    check_file(path, found.uid(), found.mode() & 0o7777, user)?;
    text(file).map_err(failed)?.ok_or_else(|| TokenError::NoToken(path.to_owned()))
}

fn check_file(path: &Path, owner: u32, mode: u32, user: u32) -> Result<(), TokenError> {
    let path = path.to_owned();
    if owner != 0 && owner != user {
        return Err(TokenError::Owner { path, owner, user });
    }
    if mode & OTHERS != 0 {
        return Err(TokenError::Mode { path, mode });
    }
    Ok(())
}

fn text(file: File) -> io::Result<Option<Token>> {
    let mut bytes = Vec::new();
    // Room for a line end, and for one character too many.
    file.take(TOKEN_CHARS_MAX as u64 + 2).read_to_end(&mut bytes)?;
    let bytes = bytes.trim_ascii();
    let is_token = (TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic);
    Ok(is_token.then(|| Token(String::from_utf8_lossy(bytes).into_owned())))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn file(text: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn refusal(text: &[u8], mode: u32) -> String {
        let (_folder, path) = file(text, mode);
        read(&path, user()).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_token_is_the_line_in_its_file() {
        let (_folder, path) = file(b"0123456789abcdef\n", 0o600);
        let token = read(&path, user()).map_err(|error| error.to_string()).ok().unwrap();
        assert!(token.matches("0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef\n"] {
            assert!(!token.matches(other), "{other:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_names_the_remedy() {
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            let error = refusal(b"0123456789abcdef", mode);
            assert!(error.contains(&format!("has mode {mode:04o}")), "{error}");
            assert!(error.contains("type `chmod 600 /"), "{error}");
        }
        assert!(check_file(Path::new("/t"), 0, 0o400, 7).is_ok());
        assert!(check_file(Path::new("/t"), 7, 0o600, 7).is_ok());
        let error = check_file(Path::new("/t"), 8, 0o600, 7).unwrap_err().to_string();
        assert!(error.contains("belongs to user 8") && error.contains("`chown 7 /t`"), "{error}");
    }

    #[test]
    fn what_is_no_token_is_refused_with_a_remedy() {
        for text in [&b""[..], b"short", b"0123456789 abcdef", &[b'x'; 257], &[0xff; 20]] {
            let error = refusal(text, 0o600);
            assert!(error.contains("holds no token") && error.contains("umask 077"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let error = |path: &Path| read(path, user()).map(|_| ()).unwrap_err().to_string();
        assert!(error(folder.path()).contains("is not a regular file"));
        assert!(error(&folder.path().join("none")).contains("cannot read token file"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(error(&pipe).contains("is not a regular file"));
    }

    proptest! {
        #[test]
        fn any_content_is_a_token_or_an_error(content in prop::collection::vec(any::<u8>(), 0..300)) {
            let (_folder, path) = file(&content, 0o600);
            let token = read(&path, user());
            prop_assert!(token.is_ok() || content.len() < 16 || content.len() > 256
                || !content.trim_ascii().iter().all(u8::is_ascii_graphic)
                || content.trim_ascii().len() < 16);
        }
    }
}
