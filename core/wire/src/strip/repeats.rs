//! Repeats in a sequence: stretches in which the same few classes occur again and again.

/// Longest period that is searched.
const LONGEST: usize = 2048;
/// Most comparisons for one sequence.
const LOOKS: usize = 1 << 27;

/// A repetitive stretch of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    /// The start of the stretch.
    pub(super) start: usize,
    /// The number of items in each round.
    pub(super) period: usize,
    /// The number of rounds, at least two.
    pub(super) times: usize,
}

impl Repeat {
    /// The number of items.
    fn len(&self) -> usize {
        self.period * self.times
    }
}

/// The repetitive stretches of `classes`, in order and without overlap. The longest stretches are taken first; of
/// equally long stretches, the one with the shortest period. `gaps` has the number of links across the gap before each
/// item, and rounds begin where few links cross. `left` is the number of comparisons that are still allowed.
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
        // Earlier stretches are as long or longer. If one of them overlaps, it covers the first or the last item.
        if items.first() == Some(&true) || items.last() == Some(&true) {
            return false;
        }
        items.fill(true);
        true
    });
    found.sort_by_key(|each| each.start);
    found
}

/// Calls `each` with the start and end of all stretches that have at least two rounds of `period`.
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

/// The rounds of `period` in a stretch. They begin where the fewest links cross, unless this would cost a round.
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
