package zabor

// Foresee says what [Fence.Do] would do with e now, and does nothing: no row is
// written, nothing is called and nobody is told. row is what the table has for
// e.Key; nil: nothing. An e whose request cannot be made any more has no Freeze,
// as for [Fence.Repeat], and needs only its Key and Message.
//
// Where calls is true, next is the row as it would be captured, with the request
// that would be sent, also where that may be kept nowhere: mask it before it is
// shown. Else next is the row that would answer, and the error is Do's: nil says
// that the message would be acked. Without a row and without a Freeze it is
// [ErrNoRow]. Pauses of a provider are not foreseen.
func (f *Fence) Foresee(row *Row, e Effect) (next Row, calls bool, err error) {
	switch {
	case row == nil && e.Freeze == nil:
		return Row{}, false, &Error{Key: e.Key, Err: ErrNoRow}
	case row == nil:
		if next, err = f.fresh(e); err != nil {
			return Row{}, false, &Error{Key: e.Key, Err: err, Reason: "nothing would be sent"}
		}
		calls = next.State == Captured
	case e.Freeze == nil:
		return *row, false, repeated(*row, e.Message)
	default:
		if next, _, err = f.meet(*row, e); err != nil {
			return *row, false, err
		}
		calls = next.State == Captured && next.Claim != row.Claim
	}
	if e.Unkept && (calls || row == nil) {
		next.Request, err = e.render(next)
	}
	if err == nil && !calls {
		err = stateError(next)
	}
	return next, calls, err
}
