package lease

// Feedback is the latest progress that a worker reported for an attempt. No rule depends on it;
// people read it.
type Feedback struct {
	Attempt  uint32
	Fraction float64 // 0 to 1
	Stage    string
	Message  string
	Metrics  map[string]float64
	Chunks   []Chunk // the newest ones, in the order of their arrival
}

// Chunk is a piece of an attempt's output.
type Chunk struct {
	Channel  string
	Index    uint64
	MIMEType string
	Text     string
	Data     []byte // if not nil, the chunk is binary and Text is empty
	Metadata map[string]string
}

// Size returns about how many bytes the chunk has.
func (c *Chunk) Size() int {
	n := len(c.Text) + len(c.Data)
	for k, v := range c.Metadata {
		n += len(k) + len(v)
	}
	return n
}
