package index

// A Mark is what the last bit of a moment tells in a queue with Terms.Marked: by which of two rules the moment comes. So it
// goes wherever the moment goes, through journal, pages and snapshots. What the marks mean is the caller's to say.
// The index sees to it that a moment keeps its mark when a column cannot tell it.
type Mark uint8

// marks is how many there are: of as many moments in a row each bears another.
const marks = 2

// MarkOf is the mark that a moment bears.
func MarkOf(at int64) Mark { return Mark(at % marks) }

// From is the first moment from at on that bears the mark, which may be moment.Never after moment.Last.
func (m Mark) From(at int64) int64 { return at + int64(m^MarkOf(at)) }
