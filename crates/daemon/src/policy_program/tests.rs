//! Programs that answer, and programs that misbehave.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use ballast_model::GuestId;
use ballast_policy::{Contender, Problem};

use super::*;

/// Long enough for a shell on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

fn question() -> Question {
    let guest: GuestId = "a".parse().unwrap();
    let problem = Problem::new(Bytes::gib(1), vec![Contender::new(guest, Bytes::mib(300))]);
    Question::about(problem, Bytes::mib(100)).unwrap()
}

/// A program in shell.
fn program(script: &str, deadline: Duration) -> PolicyProgram {
    PolicyProgram::new(ExternalSettings {
        program: "/bin/sh".into(),
        args: vec!["-c".to_owned(), script.to_owned()],
        deadline,
        user: None,
    })
}

fn code(answer: &PolicyAnswer) -> &'static str {
    match answer {
        PolicyAnswer::Targets(_) => "targets",
        PolicyAnswer::Fault(fault) => fault.code(),
    }
}

/// Asks until there is an answer of this kind.
async fn until(program: &mut PolicyProgram, wanted: &str) -> PolicyAnswer {
    let begun = Instant::now();
    loop {
        let answer = program.ask(&question()).await;
        if code(&answer) == wanted {
            return answer;
        }
        assert!(begun.elapsed() < PATIENT, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Answers each question with its number.
const GOOD: &str =
    r#"exec sed -u 's/.*"question":\([0-9]*\).*/{"question":\1,"targets":{"a":\1}}/'"#;

#[tokio::test]
async fn each_question_gets_its_own_answer() {
    let mut program = program(GOOD, PATIENT);
    for number in 1..=3 {
        let PolicyAnswer::Targets(targets) = program.ask(&question()).await else { panic!() };
        assert_eq!(targets[0].target, Bytes::new(number));
    }
}

#[tokio::test]
async fn the_environment_is_its_own() {
    // Cargo sets the first variable, and the user's login the second.
    let script = format!("test -z \"$CARGO_MANIFEST_DIR$HOME\" && test \"$PWD\" = / && {GOOD}");
    assert_eq!(code(&program(&script, PATIENT).ask(&question()).await), "targets");
}

#[tokio::test]
async fn wrong_programs_are_told_apart() {
    for (script, wanted) in [
        ("exit 3", "ended"),
        ("exec >&-; sleep 600", "ended"),
        ("read line; kill -9 $$", "ended"),
        ("read line; echo hello; sleep 600", "malformed"),
        ("read line; echo '{\"question\": 9, \"targets\": {}}'; sleep 600", "out-of-step"),
        ("read line; exec cat /dev/zero", "too-long"),
        ("exec yes", "malformed"),
    ] {
        let answer = program(script, PATIENT).ask(&question()).await;
        assert_eq!(code(&answer), wanted, "{script}: {answer:?}");
    }
    let mut missing = program("", PATIENT);
    missing.settings.program = "/no/such/program".into();
    let answer = missing.ask(&question()).await;
    assert!(format!("{answer:?}").contains("/no/such/program"), "{answer:?}");
    let folder = tempfile::tempdir().unwrap();
    let mut open = program("", PATIENT);
    open.settings.program = folder.path().join("open");
    std::fs::write(&open.settings.program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&open.settings.program, Permissions::from_mode(0o757)).unwrap();
    let answer = open.ask(&question()).await;
    assert!(format!("{answer:?}").contains("everybody may write to it"), "{answer:?}");
    let mut nobodys = program(GOOD, PATIENT);
    nobodys.settings.user = Some("no-such-user".to_owned());
    let answer = nobodys.ask(&question()).await;
    assert!(format!("{answer:?}").contains("no user `no-such-user`"), "{answer:?}");
}

#[tokio::test]
async fn how_it_ended_is_told() {
    let mut program = program("exit 3", PATIENT);
    let answer = program.ask(&question()).await;
    let PolicyAnswer::Fault(fault) = &answer else { panic!("{answer:?}") };
    assert!(fault.to_string().contains("exit status: 3"), "{fault}");
    // It pauses, and the cause stays the same.
    assert_eq!(program.ask(&question()).await, answer);
    assert!(program.running.is_none());
}

#[tokio::test]
async fn a_late_answer_is_dropped_and_the_next_one_counts() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script = format!("until test -e {}; do sleep 0.01; done; {GOOD}", go.display());
    let mut program = program(&script, Duration::from_millis(50));
    assert_eq!(code(&program.ask(&question()).await), "late");
    assert_eq!(code(&program.ask(&question()).await), "late");
    std::fs::write(&go, "").unwrap();
    let PolicyAnswer::Targets(targets) = until(&mut program, "targets").await else { panic!() };
    assert!(program.asked > 2);
    assert_eq!(targets[0].target, Bytes::new(program.asked));
}

#[tokio::test]
async fn a_killed_program_is_started_again() {
    let mut program = program(GOOD, PATIENT);
    until(&mut program, "targets").await;
    let pid = program.running.as_ref().unwrap().child.id().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let ended = until(&mut program, "ended").await;
    assert!(format!("{ended:?}").contains("9"), "{ended:?}");
    assert!(program.pause > PAUSE_FIRST);
    until(&mut program, "targets").await;
    assert_eq!(program.pause, PAUSE_FIRST);
}

#[tokio::test]
async fn pauses_double_up_to_a_minute() {
    let mut program = program("exit 1", PATIENT);
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(program.pause.as_secs(), pause);
        program.ended = None;
        assert_eq!(code(&program.ask(&question()).await), "ended");
    }
}

#[tokio::test]
async fn a_program_that_reads_nothing_is_given_up() {
    let mut program = program("sleep 600", Duration::from_millis(20));
    // A question longer than any pipe.
    let guest = |n: u32| Contender::new(format!("g{n}").parse().unwrap(), Bytes::mib(1));
    let problem = Problem::new(Bytes::gib(64), (0..20_000).map(guest).collect());
    let question = Question::about(problem, Bytes::ZERO).unwrap();
    assert_eq!(code(&program.ask(&question).await), "late");
    assert!(program.running.is_none(), "half a question was written");
}
