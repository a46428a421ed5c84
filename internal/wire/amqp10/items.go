package amqp10

// Items iterates over the values in a list, a map or an array:
//
//	items := v.Items()
//	for item, ok := items.Next(); ok; item, ok = items.Next() {
//	}
//	err := items.Err()
type Items struct {
	rest     []byte
	left     uint32
	element  Value // its constructor, of an array
	elements bool  // they are an array's
	depth    uint8
	err      error
}

// Items returns an iterator over the values in a list, of a map over its keys and values in turn, of an array over
// its elements. All other values have none.
func (v Value) Items() Items {
	if v.descriptors != nil {
		return Items{}
	}
	return v.items()
}

// ItemsBelow is Items for what is below the descriptors, as what is in a section.
func (v *Value) ItemsBelow() Items { return v.items() }

// items is ItemsBelow.
func (v *Value) items() Items {
	if v.code < codeList8 {
		return Items{}
	}
	it := Items{left: v.count(), rest: v.content[sizeWidth(v.code):], depth: v.depth + 1}
	if it.depth > maxDepth {
		return Items{err: ErrTooDeep}
	}
	if types[v.code] == TypeArray {
		it.elements = true
		it.rest, it.err = it.element.readConstructor(it.rest, it.depth)
	}
	return it
}

// Next returns the next value; false after the last one, and if it cannot be read: Err knows.
func (it *Items) Next() (v Value, ok bool) {
	if !it.next(&v) {
		return Value{}, false
	}
	return v, true
}

// Read is Next into a Value that the caller has, which saves copies of it where many are read.
func (it *Items) Read(v *Value) bool { return it.next(v) }

// next is Read.
func (it *Items) next(v *Value) bool {
	switch {
	case it.err != nil:
		return false
	case it.left == 0:
		if len(it.rest) > 0 {
			it.err = ErrTrailing
		}
		return false
	case it.elements:
		*v = it.element
		it.rest, it.err = v.readContent(it.rest)
	default:
		it.rest, it.err = v.read(it.rest, it.depth)
	}
	it.left--
	return it.err == nil
}

// Err returns why Next came to no end, ErrTrailing or an error of ReadValue's, or nil.
func (it *Items) Err() error { return it.err }

// Lookup returns the value of the first key of a map that is this string or symbol. It reads over all
// before it, and nothing of what they hold.
func (v Value) Lookup(key string) (value Value, ok bool) {
	if v.Type() != TypeMap {
		return Value{}, false
	}
	items := v.items()
	var k Value
	for items.next(&k) && items.next(&value) {
		if t := k.Type(); (t == TypeSymbol || t == TypeString) && string(k.content) == key {
			return value, true
		}
	}
	return Value{}, false
}

// At returns the value at a place of a list, counted from 0, or none if the list ends before.
func (v Value) At(i int) Value {
	if v.Type() != TypeList {
		return Value{}
	}
	items := v.items()
	var item Value
	for ; items.next(&item); i-- {
		if i == 0 {
			return item
		}
	}
	return Value{}
}

// Symbols iterates over a field that may have several symbols (multiple="true", 1.4): none, one, or an
// array of them.
func (v Value) Symbols() Symbols {
	if v.Type() == TypeArray {
		return Symbols{items: v.Items()}
	}
	return Symbols{one: v}
}

// Symbols iterates over symbols; see Value.Symbols.
type Symbols struct {
	items Items
	one   Value
}

// Next returns the next symbol; false after the last one and at what is none.
func (s *Symbols) Next() (symbol []byte, ok bool) {
	if s.one.code != 0 {
		one := s.one
		s.one = Value{}
		return one.Symbol()
	}
	v, ok := s.items.Next()
	if !ok {
		return nil, false
	}
	return v.Symbol()
}
