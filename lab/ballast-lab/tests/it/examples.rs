//! Tests that every example in a help text is a command that its program accepts.

use clap::{CommandFactory, Parser};

/// The words of a shell line up to its first pipe or redirection; single quotes group words.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.into_iter().take_while(|word| word != "|" && word != ">").collect()
}

/// Parses `line` as its program would, including what `ballast` forwards to `ballast-lab`.
fn take(line: &str) {
    let words = words(line);
    let is_handed = ballast_lab::cli::Cli::command().find_subcommand(&words[1]).is_some();
    let result = if is_handed {
        ballast_lab::cli::Cli::try_parse_from(words).map(drop)
    } else {
        ballast::cli::Cli::try_parse_from(words).map(drop)
    };
    result.unwrap_or_else(|error| panic!("{line}: {error}"));
}

/// Parses the examples of `command` and its subcommands; returns their number.
fn take_examples(command: &clap::Command) -> usize {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut count = 0;
    for line in help.lines().filter(|line| line.starts_with("  ballast")) {
        let is_ours = |part: &&str| part.starts_with("ballast");
        for part in line.trim().split(" && ").filter(is_ours) {
            take(part);
            count += 1;
        }
    }
    for below in command.get_subcommands() {
        let below_count = take_examples(below);
        // `ballast-lab` has the help of commands that `ballast` forwards to it.
        let is_handed = below.is_disable_help_flag_set();
        assert!(below_count > 0 || is_handed || below.is_hide_set(), "{}", below.get_name());
        count += below_count;
    }
    count
}

#[test]
fn every_command_takes_its_examples() {
    for command in [ballast::cli::Cli::command(), ballast_lab::cli::Cli::command()] {
        command.clone().debug_assert();
        assert!(take_examples(&command) > 10);
    }
}

/// A longer line would be wrapped at an arbitrary place.
#[test]
fn helps_fit_into_a_hundred_columns() {
    fn check(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
        }
        for below in command.get_subcommands() {
            check(below);
        }
    }
    for command in [ballast::cli::Cli::command(), ballast_lab::cli::Cli::command()] {
        check(&command);
    }
}
