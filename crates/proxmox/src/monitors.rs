//! The QMP sockets in a virtual machine's `args`.
//!
//! Idea: the operator adds a monitor for Ballast in one of the two ways QEMU knows: `-qmp`, or
//! `-chardev` and `-mon`. Only Unix sockets on which QEMU listens are returned.
//! Limits: a path with a comma, which QEMU writes twice, is not found. No guest's name has one.

use std::path::PathBuf;

/// The sockets, in the order of their options. `None` if a quote is not closed.
pub(crate) fn monitors(args: &str) -> Option<Vec<PathBuf>> {
    let words = shlex::split(args)?;
    let options =
        || words.windows(2).map(|pair| (pair[0].trim_start_matches('-'), pair[1].as_str()));
    let chardevs: Vec<&str> =
        options().filter(|(option, _)| *option == "chardev").map(|(_, value)| value).collect();
    let socket = |(option, value): (&str, &str)| match option {
        "qmp" | "qmp-pretty" => path(value.strip_prefix("unix:")?.split(',').next()?),
        "mon" if key(value, "mode") == Some("control") => {
            let id = key(value, "chardev").or_else(|| first(value))?;
            let chardev = chardevs.iter().find(|it| key(it, "id") == Some(id))?;
            path(key(chardev, "path").filter(|_| first(chardev) == Some("socket"))?)
        }
        _ => None,
    };
    Some(options().filter_map(socket).collect())
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// The value of `name` in `a,name=value,b`.
fn key<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value.split(',').find_map(|part| part.split_once('=').filter(|it| it.0 == name)).map(|it| it.1)
}

/// The first part of an option's value, if it has no name.
fn first(value: &str) -> Option<&str> {
    value.split(',').next().filter(|part| !part.contains('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_add_a_qmp_socket_are_found() {
        let found = |args: &str| {
            let sockets = monitors(args)?;
            Some(sockets.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(" "))
        };
        for (args, sockets) in [
            ("", Some("")),
            ("-qmp unix:/b/1.sock,server=on,wait=off", Some("/b/1.sock")),
            ("--qmp 'unix:/b/a b.sock,server=on' -no-reboot", Some("/b/a b.sock")),
            (
                "-chardev socket,id=x,path=/b/1.sock,server=on -mon chardev=x,mode=control",
                Some("/b/1.sock"),
            ),
            ("-mon x,mode=control -chardev socket,path=/b/1.sock,id=x", Some("/b/1.sock")),
            ("-qmp unix:/b/1.sock -qmp-pretty unix:/b/2.sock", Some("/b/1.sock /b/2.sock")),
            // Not QMP, not a Unix socket, not there, nothing.
            ("-chardev socket,id=x,path=/b/1.sock -mon chardev=x,mode=readline", Some("")),
            ("-chardev pipe,id=x,path=/b/1 -mon chardev=x,mode=control", Some("")),
            ("-qmp tcp:localhost:4444 -mon chardev=y,mode=control", Some("")),
            ("-qmp unix: -qmp", Some("")),
            ("-smbios 'type=0", None),
        ] {
            assert_eq!(found(args).as_deref(), sockets, "{args}");
        }
    }
}
