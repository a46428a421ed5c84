package amqp091

// DecodeStartOk reads the arguments of connection.start-ok as ConnectionStartOk.Decode does, and finds the same wrong
// with them, but of the client's properties it makes values only of those that keep wants: nobody knows the client yet,
// and a value takes several times the memory of what it is made of. content is as RangeHeaders gives it.
func DecodeStartOk(args []byte, keep func(key []byte, typ byte, content []byte) bool) (*ConnectionStartOk, error) {
	r := argReader{method: ConnectionStartOkID, rest: args}
	m := &ConnectionStartOk{ClientProperties: Table{}}
	properties := r.take("client-properties", r.long("client-properties"))
	if r.err == nil {
		if err := CheckTable(properties); err != nil {
			r.fail("client-properties", err)
		}
	}
	m.Mechanism = r.shortstr("mechanism")
	m.Response = r.longstr("response")
	m.Locale = r.shortstr("locale")
	if err := r.end(); err != nil {
		return nil, err
	}
	RangeHeaders(properties, func(key []byte, typ byte, content []byte) bool {
		if keep(key, typ, content) {
			if v, err := DecodeValue(typ, content); err == nil {
				m.ClientProperties = append(m.ClientProperties, Field{string(key), v})
			}
		}
		return true
	})
	return m, nil
}

// CheckTable returns the error that DecodeTable would, and makes nothing of the table.
func CheckTable(b []byte) error {
	_, err := checkTable(b, 0)
	return err
}
