//! Repeats in a sequence: stretches that are the same few classes again and again.

/// Longest period that is looked for.
const LONGEST: usize = 2048;
/// Comparisons that one sequence may take.
const LOOKS: usize = 1 << 27;

/// A stretch of a sequence that repeats itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    /// Where it begins.
    pub(super) start: usize,
    /// Items of each round.
    pub(super) period: usize,
    /// Number of rounds, at least two.
    pub(super) times: usize,
}

impl Repeat {
    /// Number of items.
    fn len(&self) -> usize {
        self.period * self.times
    }
}

/// Stretches of `classes` that repeat themselves, in order and apart from each other; the longest are taken first, and of
/// equally long ones that with the shortest period. `gaps` has the links over the gap before each item: rounds begin
/// where they are few. `left` is the number of comparisons that may still be made.
pub(super) fn repeats(classes: &[u64], gaps: &[u32], left: &mut usize) -> Vec<Repeat> {
    let mut found = Vec::new();
    let longest = LONGEST.min(classes.len() / 2).min(LOOKS / classes.len().max(1));
    for period in 1..=longest {
        let Some(rest) = left.checked_sub(classes.len()) else { break };
        *left = rest;
        stretches(classes, period, |start, end| found.push(aligned(gaps, start, end, period)));
    }
    found.sort_by_key(|each| (std::cmp::Reverse(each.len()), each.period, each.start));
    let mut taken = vec![false; classes.len()];
    found.retain(|each| {
        let Some(items) = taken.get_mut(each.start..each.start + each.len()) else { return false };
        // Those that came before are as long or longer: one of them within reaches the first or the last item.
        if items.first() == Some(&true) || items.last() == Some(&true) {
            return false;
        }
        items.fill(true);
        true
    });
    found.sort_by_key(|each| each.start);
    found
}

/// Calls `each` with the begin and the end of all stretches of at least two rounds of `period`.
fn stretches(classes: &[u64], period: usize, mut each: impl FnMut(usize, usize)) {
    let later = classes.get(period..).unwrap_or_default();
    let mut start = 0;
    for (at, (one, other)) in classes.iter().zip(later).enumerate() {
        if one != other {
            if at - start >= period {
                each(start, at + period);
            }
            start = at + 1;
        }
    }
    if later.len().saturating_sub(start) >= period {
        each(start, later.len() + period);
    }
}

/// The rounds of `period` in a stretch, which begin where the fewest links cross, if that costs none of them.
fn aligned(gaps: &[u32], start: usize, end: usize, period: usize) -> Repeat {
    let times = (end - start) / period;
    let slack = end - start - times * period;
    let crossed = |start: usize| gaps.get(start + period).copied().unwrap_or(0);
    let start = (start..=start + slack).min_by_key(|start| crossed(*start)).unwrap_or(start);
    Repeat { start, period, times }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(classes: &str) -> Vec<(usize, usize, usize)> {
        let classes: Vec<u64> = classes.bytes().map(u64::from).collect();
        let all = repeats(&classes, &[], &mut usize::MAX.clone());
        all.iter().map(|each| (each.start, each.period, each.times)).collect()
    }

    #[test]
    fn the_longest_stretch_is_taken() {
        assert_eq!(found("xabcabcabcy"), [(1, 3, 3)]);
        assert_eq!(found("aabaab"), [(0, 3, 2)]);
        assert_eq!(found("aaaa"), [(0, 1, 4)]);
        assert_eq!(found("aaabbbbcdcd"), [(0, 1, 3), (3, 1, 4), (7, 2, 2)]);
        assert_eq!(found("abcdef"), []);
        assert_eq!(found(""), []);
    }

    #[test]
    fn rounds_begin_where_few_links_cross() {
        let classes: Vec<u64> = "xabcabcay".bytes().map(u64::from).collect();
        let gaps = [9, 9, 9, 9, 9, 1, 9, 9, 1];
        let found = repeats(&classes, &gaps, &mut usize::MAX.clone());
        assert_eq!(found, [Repeat { start: 2, period: 3, times: 2 }]);
    }

    #[test]
    fn comparisons_are_bounded() {
        let classes = [1, 2, 1, 2, 1, 2];
        assert_eq!(repeats(&classes, &[], &mut 11), []);
    }
}
