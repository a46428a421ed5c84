package letter

import (
	"strings"
	"unicode"
)

// usual says how usual it is that one letter follows another within words of program texts, from 0, hardly ever, to 9: the
// logarithm of how much more often than by chance, counted over the words of Go's library and of this project's pages. A line
// has the letters behind one.
const usual = "" +
	"47884562625878272878574551" + // a
	"64446432640722542563623132" + // b
	"83657557607665853667562230" + // c
	"64578432730554644664644441" + // d
	"75886664513778565988565742" + // e
	"63556742700654650664513241" + // f
	"53437345600435651664522011" + // g
	"62247313602543630544403031" + // h
	"65776772322779862678263406" + // i
	"30013100200012320041300000" + // j
	"32226331500324221054201010" + // k
	"73568434804744743466544273" + // l
	"85448332703453773265632220" + // m
	"74778683735545752478553232" + // n
	"55764652504778670876776410" + // o
	"74657445604763762876633340" + // p
	"12130001100140122321502200" + // q
	"84669553805666853677554350" + // r
	"64658457805654664678735362" + // s
	"84659547803654763876644563" + // t
	"56545540600667463677111402" + // u
	"64457523601553474465324202" + // v
	"63235224500334531552205201" + // w
	"44435412400242452346332320" + // x
	"22323200400255260353002223" + // y
	"30206000300100310110102202" // z

// What unlike adds for a word that stands where ids stand, and for one that is a name more often.
const (
	likely  = 4
	careful = -7
)

// unlike says whether a text of ASCII letters and digits looks like chance rather than like words. Letters and digits beside
// each other are chance, and so are a small letter and a capital, unless a part of a name such as orderPlaced begins. The
// longer the text, the more it must look like words. By more than 0 it must do so by as much more, in tenths.
//
// Measured when it was written: of words that programs use it takes 3 of 100 for chance. Of random words of small letters it
// finds 75 of 100 with 5 letters, 95 with 8 and 99 with 10.
func unlike(s string, more int) bool {
	sum, pairs, part := 0, 0, 1
	for i := 1; i < len(s); i++ {
		a, b := classes[s[i-1]], classes[s[i]]
		switch {
		case a&b&(capital|small) != 0 || a&capital != 0 && b&small != 0:
			if a&capital != 0 && b&small != 0 {
				part = 1 // the capital begins a word, also behind an abbreviation
			}
			sum += int(usual[int(s[i-1]|0x20-'a')*26+int(s[i]|0x20-'a')] - '0')
			part++
		case a&small != 0 && b&capital != 0 && part >= 3:
			part = 1
			continue // a new word
		default:
			part = 1
		}
		pairs++
	}
	const of10 = 10
	least := 62
	switch n := len(s); {
	case n < 6:
		least = 48
	case n < 8:
		least = 53
	case n < of10:
		least = 58
	}
	return sum*of10 < (least+more)*pairs
}

// unlikePart says whether a part of a word with dashes or underscores looks like chance.
func unlikePart(w string, more int) bool {
	for begin := 0; begin < len(w); {
		end := begin
		for end < len(w) && w[end] != '-' && w[end] != '_' {
			end++
		}
		if end-begin >= 5 && unlike(w[begin:end], more) {
			return true
		}
		begin = end + 1
	}
	return false
}

// isRandom says whether a word of letters alone is an id nevertheless. It must look the less like one, the more its place is one of ids.
func (p *patterner) isRandom(w string, seen class, joined bool) bool {
	if len(w) < 5 {
		return false
	}
	parts := joined || seen&under != 0
	if seen&small == 0 { // a state or a constant, mostly
		return p.sense == identity && !parts && unlike(w, 2*likely)
	}
	capitals := seen&capital != 0 && strings.IndexFunc(w[1:], unicode.IsUpper) >= 0 // others than at the beginning of a name
	more := careful
	if p.path || p.sense == identity && (capitals || p.behindSign(len(w))) {
		more = likely
	}
	if parts {
		if end := strings.IndexAny(w, "-_"); !p.bare && end > 0 && senseOf(w[:end], silent) == identity {
			more = likely // "order_m8ftrx"
		}
		return joined && p.temporary || unlikePart(w, more) || p.sense == identity && capitals && unlike(w, 0)
	}
	ids := capitals || p.path || p.bare || p.sense == identity
	if p.at+1 < len(p.in) && p.in[p.at] == ':' && isWord(p.in[p.at+1]) { // a part of a key such as "cart:x8ftrx:items"
		if begin := p.at - len(w); begin > 1 && p.in[begin-1] == ':' && isWord(p.in[begin-2]) {
			ids, more = true, 2*likely
		} else if capitals {
			more = 0
		}
	}
	return ids && unlike(w, more)
}

// behindSign says whether the last n bytes stand behind "=" or ":".
func (p *patterner) behindSign(n int) bool {
	at := p.at - n - 1
	if at > 0 && p.in[at] == ' ' {
		at--
	}
	return at >= 0 && (p.in[at] == '=' || p.in[at] == ':')
}
