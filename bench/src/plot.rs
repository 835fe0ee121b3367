//! A plot in SVG: panels with a line each for everything that is compared. Both axes are logarithmic.

use std::fmt;

const WIDTH: f64 = 250.0;
const HEIGHT: f64 = 130.0;
/// Around each panel, for its labels.
const MARGIN: f64 = 45.0;
const COLUMNS: usize = 3;
/// Readable on a light and on a dark page.
const COLOURS: [&str; 2] = ["#2f81f7", "#d29922"];
const TEXT: &str = "#848d97";

/// Panels under one title.
pub(crate) struct Plot<const N: usize> {
    title: &'static str,
    lines: &'static [&'static str],
    pub(crate) panels: [Panel; N],
}

/// One quantity, over how many there are.
pub(crate) struct Panel {
    title: &'static str,
    /// (line, x, y)
    points: Vec<(usize, f64, f64)>,
}

impl Panel {
    pub(crate) fn new(title: &'static str) -> Self {
        Self { title, points: Vec::new() }
    }

    /// Adds a point to a line, if there is a figure.
    pub(crate) fn add(&mut self, line: usize, x: usize, y: Option<f64>) {
        #[expect(clippy::cast_precision_loss, reason = "a place on a page")]
        self.points.extend(y.map(|y| (line, x as f64, y)));
    }

    /// The powers of ten around all figures: at least one decade.
    fn decades(&self, of: impl Fn(&(usize, f64, f64)) -> f64) -> (f64, f64) {
        let logs = self.points.iter().map(|point| of(point).max(0.1).log10());
        let (low, high) =
            logs.fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(log), high.max(log)));
        if low > high {
            return (0.0, 1.0);
        }
        (low.floor(), high.ceil().max(low.floor() + 1.0))
    }

    fn draw(&self, f: &mut fmt::Formatter<'_>, left: f64, top: f64) -> fmt::Result {
        let (x_decades, y_decades) = (self.decades(|point| point.1), self.decades(|point| point.2));
        let place =
            |value: f64, (low, high): (f64, f64)| (value.max(0.1).log10() - low) / (high - low);
        let x = |value: f64| left + WIDTH * place(value, x_decades);
        let y = |value: f64| top + HEIGHT * (1.0 - place(value, y_decades));
        writeln!(f, r#"<text x="{left}" y="{}" fill="{TEXT}">{}</text>"#, top - 8.0, self.title)?;
        let frame = r#"fill="none" stroke="currentColor" stroke-opacity="0.2""#;
        writeln!(
            f,
            r#"<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" color="{TEXT}" {frame}/>"#
        )?;
        for (value, decades) in [(x_decades.0, x_decades), (x_decades.1, x_decades)] {
            let value = 10_f64.powf(value);
            let at = left + WIDTH * place(value, decades);
            let below = top + HEIGHT + 14.0;
            writeln!(
                f,
                r#"<text x="{at}" y="{below}" text-anchor="middle" fill="{TEXT}">{value}</text>"#
            )?;
        }
        for decade in [y_decades.0, y_decades.1] {
            let value = 10_f64.powf(decade);
            let (before, at) = (left - 4.0, y(value) + 4.0);
            writeln!(
                f,
                r#"<text x="{before}" y="{at}" text-anchor="end" fill="{TEXT}">{value}</text>"#
            )?;
        }
        for (line, colour) in COLOURS.iter().enumerate() {
            let points = || self.points.iter().filter(|point| point.0 == line);
            write!(f, r#"<polyline fill="none" stroke="{colour}" stroke-width="2" points=""#)?;
            for point in points() {
                write!(f, "{:.1},{:.1} ", x(point.1), y(point.2))?;
            }
            writeln!(f, r#""/>"#)?;
            for point in points() {
                let (x, y) = (x(point.1), y(point.2));
                writeln!(f, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#)?;
            }
        }
        Ok(())
    }
}

impl<const N: usize> Plot<N> {
    pub(crate) fn new(
        title: &'static str,
        lines: &'static [&'static str],
        panels: [Panel; N],
    ) -> Self {
        Self { title, lines, panels }
    }
}

impl<const N: usize> fmt::Display for Plot<N> {
    #[expect(clippy::cast_precision_loss, reason = "a few panels")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (column, row) = (WIDTH + 2.0 * MARGIN, HEIGHT + 2.0 * MARGIN);
        let (width, height) = (COLUMNS as f64 * column, N.div_ceil(COLUMNS) as f64 * row + MARGIN);
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
        )?;
        writeln!(f, "<title>{}</title>", self.title)?;
        for (number, panel) in self.panels.iter().enumerate() {
            let (left, top) = ((number % COLUMNS) as f64 * column, (number / COLUMNS) as f64 * row);
            panel.draw(f, left + MARGIN, top + MARGIN)?;
        }
        for (number, (line, colour)) in self.lines.iter().zip(COLOURS).enumerate() {
            let (left, at) = (MARGIN + number as f64 * 90.0, height - 20.0);
            writeln!(
                f,
                r#"<rect x="{left}" y="{}" width="12" height="4" fill="{colour}"/>"#,
                at - 6.0
            )?;
            writeln!(f, r#"<text x="{}" y="{at}" fill="{TEXT}">{line}</text>"#, left + 18.0)?;
        }
        writeln!(f, "</svg>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_point_inside_its_panel() {
        let mut plot = Plot::new("title", &["one", "other"], [Panel::new("a"), Panel::new("b")]);
        for (line, x, y) in [(0, 1, 5.0), (0, 10_000, 7.0), (1, 100, 300.0)] {
            plot.panels[0].add(line, x, Some(y));
        }
        plot.panels[0].add(0, 1, None);
        let svg = plot.to_string();
        assert_eq!(svg.matches("<circle").count(), 3);
        let corner = format!(r#"<circle cx="{MARGIN:.1}""#);
        assert!(svg.contains(&corner), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"));
    }
}
