//! The catalogue: which tables and figures of the papers are compared, with what, and within which
//! band.
//!
//! Idea: each paper has a file, `scenarios/evaluation/NAME.toml`, with a row for each of its tables
//! and figures. A row says where the table or figure is in the paper, how ours is obtained
//! (simulated scenarios, scenarios with real guests, recorded series, or why there is nothing), and
//! the band for each measure with its argument. The papers' figures are in the scenarios' own
//! `[[paper]]` tables; a row adds figures that no scenario has. The full name of a row is its
//! file's name, a dot and its own name, such as `meb.V`.
//! Limits: the constants below; unknown keys are refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use ballast_scenario_run::simulate::contestants::Contestants;
use serde::Deserialize;

use super::band::Band;
use super::measure::Measure;

/// The folder of the catalogue within the folder of scenarios.
const FOLDER: &str = "evaluation";
/// The greatest number of papers, of rows in one paper, and of figures in one row.
const PAPERS_MAX: usize = 16;
const ROWS_MAX: usize = 64;
const FIGURES_MAX: usize = 64;
/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// All papers, in the order of their files' names.
#[derive(Clone, Debug)]
pub(crate) struct Catalogue {
    pub(crate) papers: Vec<Paper>,
}

/// One paper.
#[derive(Clone, Debug)]
pub(crate) struct Paper {
    /// Its short name; the sources of figures begin with it.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
}

/// A table, a figure or a section of a paper.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its full name, such as `meb.V`.
    pub(crate) id: String,
    /// Where it is in the paper, such as `Table V`.
    pub(crate) place: String,
    /// The sources by which scenarios' figures name this place.
    pub(crate) sources: Vec<String>,
    /// What was measured, in words.
    pub(crate) what: String,
    /// How our figures are obtained.
    pub(crate) way: Way,
    /// The bands; those of the row come before those of the paper.
    pub(crate) bands: Vec<Band>,
    /// Figures that no scenario has.
    pub(crate) figures: Vec<OwnFigure>,
}

/// How our figures for a row are obtained.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Way {
    /// Scenarios that are simulated, under these policies instead of their own if given.
    Simulate { scenarios: Vec<String>, policies: Option<String> },
    /// Scenarios that are played on real guests.
    Lab { scenarios: Vec<String> },
    /// Series in a folder that were recorded on real guests, with the events of one column.
    Series { folder: String, events: String },
    /// We have no figures, for this reason.
    Nothing { because: String },
}

/// A figure that is in the catalogue itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnFigure {
    /// What is measured, in words.
    pub(crate) what: String,
    /// The policy, or the threshold of intermittent tracking (`adaptive`, or a number).
    pub(crate) policy: String,
    /// The guest; without it the figure is for all guests.
    #[serde(default)]
    pub(crate) guest: Option<String>,
    /// Our figure to compare with.
    pub(crate) metric: Measure,
    /// The paper's figure; without it, the row is a goal of ours.
    #[serde(default)]
    pub(crate) value: Option<f64>,
    /// Policies to compare with; the best of them counts.
    #[serde(default)]
    pub(crate) against: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperTable {
    paper: String,
    title: String,
    #[serde(default)]
    bands: Vec<Band>,
    rows: Vec<RowTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowTable {
    id: String,
    place: String,
    what: String,
    /// Default: the paper's name and the place.
    #[serde(default)]
    sources: Vec<String>,
    #[serde(default)]
    simulate: Vec<String>,
    #[serde(default)]
    policies: Option<String>,
    #[serde(default)]
    lab: Vec<String>,
    #[serde(default)]
    series: Option<String>,
    #[serde(default)]
    events: Option<String>,
    #[serde(default)]
    not: Option<String>,
    #[serde(default)]
    bands: Vec<Band>,
    #[serde(default)]
    figures: Vec<OwnFigure>,
}

impl Catalogue {
    /// Reads the catalogue of the scenarios in `folder`.
    ///
    /// # Errors
    /// A file cannot be read; or the first mistake, with its place.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Catalogue> {
        let own = folder.join(FOLDER);
        let context = || {
            format!(
                "cannot read the catalogue {}: run in Ballast's source tree, or name its scenarios \
                 with --scenarios",
                own.display()
            )
        };
        let entries = std::fs::read_dir(&own).with_context(context)?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let mut paths: Vec<PathBuf> =
            paths.collect::<std::io::Result<_>>().with_context(context)?;
        paths.retain(|path| path.extension().is_some_and(|it| it == "toml"));
        paths.sort();
        ensure!(
            !paths.is_empty(),
            "{}: no file *.toml: expected one for each paper",
            own.display()
        );
        ensure!(paths.len() <= PAPERS_MAX, "{}: more than {PAPERS_MAX} files", own.display());
        let papers = paths.iter().map(|path| paper(path)).collect::<anyhow::Result<_>>()?;
        Ok(Catalogue { papers })
    }

    /// Every row with its paper, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Paper, &Row)> {
        self.papers.iter().flat_map(|paper| paper.rows.iter().map(move |row| (paper, row)))
    }

    /// Keeps only the rows whose name is in `chosen` or begins with a name in it and a dot. If
    /// `chosen` is empty, keeps all rows.
    ///
    /// # Errors
    /// A name in `chosen` fits no row.
    pub(crate) fn keep(&mut self, chosen: &[String]) -> anyhow::Result<()> {
        for name in chosen {
            if !self.rows().any(|(_, row)| is_chosen(&row.id, name)) {
                let ids = self.rows().map(|(_, row)| row.id.as_str());
                let near = ballast_toml_strict::nearest(name, ids);
                let near = near.map(|near| format!("; the nearest is `{near}`"));
                bail!("`{name}` is no row: see --list{}", near.unwrap_or_default());
            }
        }
        if !chosen.is_empty() {
            for paper in &mut self.papers {
                paper.rows.retain(|row| chosen.iter().any(|name| is_chosen(&row.id, name)));
            }
            self.papers.retain(|paper| !paper.rows.is_empty());
        }
        Ok(())
    }
}

/// Whether `name` is the row's name `id`, or the part of it before a dot.
fn is_chosen(id: &str, name: &str) -> bool {
    id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn paper(path: &Path) -> anyhow::Result<Paper> {
    let context = || format!("cannot read {}", path.display());
    let bytes = std::fs::metadata(path).with_context(context)?.len();
    ensure!(bytes <= FILE_BYTES_MAX, "{}: more than {FILE_BYTES_MAX} bytes", path.display());
    let text = std::fs::read_to_string(path).with_context(context)?;
    parse(&text, path)
}

fn parse(text: &str, path: &Path) -> anyhow::Result<Paper> {
    let table: PaperTable = ballast_toml_strict::parse(text, path)?;
    let file = path.display();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    ensure!(
        (1..=ROWS_MAX).contains(&table.rows.len()),
        "{file}: {} rows: expected 1 to {ROWS_MAX}",
        table.rows.len()
    );
    let mut seen = BTreeSet::new();
    let mut rows = Vec::with_capacity(table.rows.len());
    for row in table.rows {
        let id = format!("{stem}.{}", row.id);
        ensure!(seen.insert(id.clone()), "{file}: {id} is there twice");
        let row = row.convert(id.clone(), &table.paper, &table.bands);
        rows.push(row.with_context(|| format!("{file}: {id}"))?);
    }
    Ok(Paper { name: table.paper, title: table.title, rows })
}

impl RowTable {
    fn convert(self, id: String, paper: &str, common: &[Band]) -> anyhow::Result<Row> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        ensure!(
            !self.id.is_empty() && self.id.chars().all(is_plain),
            "id: expected letters, digits, dots and dashes"
        );
        ensure!(
            self.figures.len() <= FIGURES_MAX,
            "{} figures: expected at most {FIGURES_MAX}",
            self.figures.len()
        );
        let way = self.way()?;
        for figure in &self.figures {
            figure.check(&way).with_context(|| format!("figure `{}`", figure.what))?;
        }
        let bands: Vec<Band> = self.bands.into_iter().chain(common.iter().cloned()).collect();
        for band in &bands {
            ensure!(
                band.is_sound(),
                "band of {}: expected within or kind, times above 1, other bounds of 0 and more, \
                 and an argument",
                band.metric.name()
            );
        }
        let sources = match self.sources.is_empty() {
            true => vec![format!("{paper} {}", self.place)],
            false => self.sources,
        };
        Ok(Row {
            id,
            place: self.place,
            sources,
            what: self.what,
            way,
            bands,
            figures: self.figures,
        })
    }

    fn way(&self) -> anyhow::Result<Way> {
        let ways = [
            !self.simulate.is_empty(),
            !self.lab.is_empty(),
            self.series.is_some(),
            self.not.is_some(),
        ];
        ensure!(
            ways.iter().filter(|is_there| **is_there).count() == 1,
            "expected one of simulate, lab, series and not"
        );
        ensure!(self.policies.is_none() || ways[0], "policies: only with simulate");
        ensure!(self.events.is_some() == ways[2], "events: expected with series, and only there");
        if let Some(policies) = &self.policies {
            let known = policies.parse::<Contestants>();
            known.map_err(|error| anyhow::anyhow!("policies: {error}"))?;
        }
        Ok(if let Some(because) = &self.not {
            Way::Nothing { because: because.clone() }
        } else if let (Some(folder), Some(events)) = (&self.series, &self.events) {
            Way::Series { folder: folder.clone(), events: events.clone() }
        } else if ways[0] {
            Way::Simulate { scenarios: self.simulate.clone(), policies: self.policies.clone() }
        } else {
            Way::Lab { scenarios: self.lab.clone() }
        })
    }
}

impl OwnFigure {
    fn check(&self, way: &Way) -> anyhow::Result<()> {
        let is_known = match way {
            Way::Simulate { .. } => self.metric.is_of_simulations(),
            Way::Lab { .. } => self.metric.is_of_lab(),
            Way::Series { .. } => self.metric.is_of_series(),
            Way::Nothing { .. } => false,
        };
        let name = self.metric.name();
        ensure!(is_known, "metric: {name} is nothing that this row can have");
        ensure!(
            self.metric.is_against() != self.against.is_empty(),
            "against: expected policies with measures against others, and only there"
        );
        let is_size = self.value.is_none_or(|value| value.is_finite() && value >= 0.0);
        ensure!(is_size, "value: expected a number, 0 or more");
        Ok(())
    }
}

impl Row {
    /// The first band that applies to figures of `measure` of `guest`.
    pub(crate) fn band(&self, measure: Measure, guest: Option<&str>) -> Option<&Band> {
        self.bands.iter().find(|band| band.is_about(measure, guest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
paper = "MEB"
title = "a title"
[[bands]]
metric = "speedup_vs_static"
within = { times = 1.25 }
because = "argued"
kind = "direction"
[[rows]]
id = "V"
place = "Table V"
what = "two large working sets"
simulate = ["meb-2-large.toml"]
[[rows]]
id = "V.real"
place = "Table V"
what = "the same"
lab = ["lab/meb-2.toml"]
[[rows]]
id = "VI"
place = "Table VI"
what = "nothing"
not = "nobody tried"
"#;

    fn read(text: &str) -> Result<Paper, String> {
        parse(text, Path::new("x/meb.toml")).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn rows_are_named_by_file_and_place() {
        let paper = read(GOOD).unwrap();
        let ids: Vec<&str> = paper.rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, ["meb.V", "meb.V.real", "meb.VI"]);
        assert_eq!(paper.rows[0].sources, ["MEB Table V"]);
        assert!(paper.rows[0].band(Measure::SpeedupVsStatic, None).is_some());
        assert_eq!(paper.rows[0].band(Measure::ConvergeS, None), None);
    }

    #[test]
    fn a_name_chooses_its_row_and_those_below() {
        let chosen = |names: &[&str]| -> Result<Vec<String>, String> {
            let mut catalogue = Catalogue { papers: vec![read(GOOD).unwrap()] };
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            catalogue.keep(&names).map_err(|error| error.to_string())?;
            Ok(catalogue.rows().map(|(_, row)| row.id.clone()).collect())
        };
        assert_eq!(chosen(&["meb.V"]).unwrap(), ["meb.V", "meb.V.real"]);
        assert_eq!(chosen(&["meb"]).unwrap().len(), 3);
        assert_eq!(chosen(&[]).unwrap().len(), 3);
        assert_eq!(chosen(&["meb.VI", "meb.V.real"]).unwrap(), ["meb.V.real", "meb.VI"]);
        let error = chosen(&["meb.VII"]).unwrap_err();
        assert!(error.contains("`meb.VII`") && error.contains("meb.VI"), "{error}");
    }

    #[test]
    fn mistakes_are_reported_with_file_and_row() {
        for (from, to, expected) in [
            ("id = \"VI\"", "id = \"V\"", "meb.V is there twice"),
            ("not = \"nobody tried\"", "", "meb.VI: expected one of"),
            ("not =", "lab = [\"a.toml\"]\nnot =", "meb.VI: expected one of"),
            ("times = 1.25", "times = 0.5", "band of speedup_vs_static"),
            ("because = \"argued\"", "because = \"\"", "an argument"),
            ("not =", "policies = \"global\"\nnot =", "only with simulate"),
            ("simulate =", "policies = \"globl\"\nsimulate =", "`globl` is not a policy"),
            ("place = \"Table V\"", "plce = \"Table V\"", "plce"),
            ("id = \"VI\"", "id = \"V I\"", "letters, digits"),
        ] {
            let error = read(&GOOD.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains("meb.toml") && error.contains(expected), "{to}: {error}");
        }
        let figure = "[[rows.figures]]\nwhat = \"w\"\npolicy = \"meb\"\nmetric = \"mre\"\n";
        let error = read(&format!("{GOOD}{figure}")).unwrap_err();
        assert!(error.contains("nothing that this row can have"), "{error}");
    }
}
