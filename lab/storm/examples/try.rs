fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let mut bad = 0;
    let mut n = 0;
    for seed in args[0]..args[1] {
        let r = ballast_storm::run_seed(seed, None);
        n += r.injected.total();
        if let Some((t, v)) = r.violation {
            bad += 1;
            if bad < 40 {
                println!("{seed} tick {t}: {v}");
            }
        }
    }
    println!("{bad} bad, {n} faults");
    for s in ballast_storm::Sabotage::ALL {
        let f =
            (args[0]..args[1]).find(|&x| ballast_storm::run_seed(x, Some(s)).violation.is_some());
        println!("{} {f:?}", s.code());
    }
}
