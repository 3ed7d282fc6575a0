package record

import "errors"

// compressRecords returns a fresh batch with the records of raw, which has a
// header's room in front, and the codec that was used.
func compressRecords(codec Codec, raw []byte) (Batch, Codec, error) {
	return append(Batch(nil), raw...), None, nil
}

func decompress(codec Codec, src []byte, limit int) ([]byte, error) {
	return nil, errors.New("not yet")
}
