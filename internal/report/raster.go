package report

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"slices"
	"strconv"
	"strings"

	"github.com/srwiley/rasterx"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// raster draws the shapes of a canvas into an image, in the style of saved charts.
type raster struct {
	img   *image.RGBA
	scale float64
	rules []styleRule
	x, y  []float64   // offsets of the enclosing groups
	from  image.Point // origin of the part of the picture that is drawn
	fonts map[string]*opentype.Font
}

// styleRule applies to shapes that have all of its classes.
type styleRule struct {
	selector string
	classes  []string
	body     string
}

// styleRules returns the style of saved charts. Rules with fewer classes come first, in the order of CSS
// specificity.
func styleRules() (rules []styleRule) {
	for rule := range strings.SplitSeq(resolve(chartStyle), "}") {
		selectors, body, ok := strings.Cut(strings.TrimSpace(rule), "{")
		for one := range strings.SplitSeq(selectors, ",") {
			if ok {
				rules = append(rules, styleRule{one, strings.Split(one, ".")[1:], body})
			}
		}
	}

	slices.SortStableFunc(rules, func(a, b styleRule) int { return len(a.classes) - len(b.classes) })
	return rules
}

func (r styleRule) matches(classes []string) bool {
	return !slices.ContainsFunc(r.classes, func(c string) bool { return !slices.Contains(classes, c) })
}

// paint renders a canvas as PNG of the given size, with scale pixels per unit.
func paint(c *canvas, size Size, scale float64) (_ []byte, err error) {
	r := &raster{
		scale: scale,
		img:   image.NewRGBA(image.Rect(0, 0, size.Width, size.Height)),
		rules: styleRules(),
		x:     []float64{0},
		y:     []float64{0},
		fonts: map[string]*opentype.Font{},
	}
	for weight, data := range map[string][]byte{"": goregular.TTF, "600": gobold.TTF} {
		if r.fonts[weight], err = opentype.Parse(data); err != nil {
			return nil, fmt.Errorf("read the built-in font: %v", err)
		}
	}

	draw.Draw(r.img, r.img.Bounds(), image.NewUniform(hexColour(palette()["surface"][0], 1)), image.Point{},
		draw.Src)
	for _, s := range c.shapes {
		if err := r.draw(s); err != nil {
			return nil, err
		}
	}

	var out bytes.Buffer
	if err := png.Encode(&out, r.img); err != nil {
		return nil, fmt.Errorf("encode PNG: %v", err)
	}

	return out.Bytes(), nil
}

// style returns the properties of a shape.
func (r *raster) style(s shape) map[string]string {
	set := map[string]string{"fill": "#000000", "fill-opacity": "1", "stroke": "none", "stroke-width": "1",
		"stroke-opacity": "1"}
	if s.kind == "path" && s.w > 0 {
		set["stroke-width"] = attr(s.w)
	}

	for _, rule := range r.rules {
		if rule.matches(strings.Fields(s.class)) {
			for pair := range strings.SplitSeq(rule.body, ";") {
				name, value, _ := strings.Cut(pair, ":")
				set[name] = value
			}
		}
	}

	return set
}

func (r *raster) draw(s shape) error {
	style := r.style(s)
	last := len(r.x) - 1
	switch s.kind {
	case titled, placed:
		r.x, r.y = append(r.x, r.x[last]+s.x), append(r.y, r.y[last]+s.y)
	case end:
		r.x, r.y = r.x[:last], r.y[:last]
	case "text":
		return r.write(style, s)
	case "path":
		r.shape(style, func(a rasterx.Adder) { r.path(a, s.text) })
	case "circle":
		r.shape(style, func(a rasterx.Adder) { rasterx.AddCircle(r.px(s.x), r.py(s.y), s.r*r.scale, a) })
	case "rect":
		r.shape(style, func(a rasterx.Adder) {
			rasterx.AddRoundRect(r.px(s.x), r.py(s.y), r.px(s.x+s.w), r.py(s.y+s.h), s.r*r.scale,
				s.r*r.scale, 0, rasterx.RoundGap, a)
		})
	}

	return nil
}

func (r *raster) px(x float64) float64 { return (x+r.x[len(r.x)-1])*r.scale - float64(r.from.X) }
func (r *raster) py(y float64) float64 { return (y+r.y[len(r.y)-1])*r.scale - float64(r.from.Y) }

// shape fills and strokes a path. The function add draws the path.
func (r *raster) shape(set map[string]string, add func(rasterx.Adder)) {
	outline := rasterx.NewScannerGV(1, 1, r.img, r.img.Bounds())
	add(rasterx.NewFiller(1, 1, outline))
	box := outline.GetPathExtent()
	around := int(numberOf(set["stroke-width"])*r.scale) + 2
	part := image.Rect(box.Min.X.Floor(), box.Min.Y.Floor(), box.Max.X.Ceil(), box.Max.Y.Ceil()).
		Inset(-around).Intersect(r.img.Bounds())
	if part.Empty() {
		return
	}

	r.from = part.Min
	defer func() { r.from = image.Point{} }()
	w := part.Dx()
	h := part.Dy()
	within := r.img.SubImage(part).(*image.RGBA)
	scanner := func() *rasterx.ScannerGV { return rasterx.NewScannerGV(w, h, within, part) }
	fill := set["fill"]
	if fill != "none" {
		f := rasterx.NewFiller(w, h, scanner())
		f.SetColor(hexColour(fill, numberOf(set["fill-opacity"])))
		add(f)
		f.Draw()
	}

	stroke := set["stroke"]
	if stroke == "none" {
		return
	}

	dash := each(strings.Fields(set["stroke-dasharray"]), func(d string) float64 {
		return numberOf(d) * r.scale
	})
	width := fixed.Int26_6(numberOf(set["stroke-width"]) * r.scale * 64)
	d := rasterx.NewDasher(w, h, scanner())
	d.SetStroke(width, 4<<6, rasterx.ButtCap, nil, rasterx.FlatGap, rasterx.MiterClip, dash, 0)
	d.SetColor(hexColour(stroke, numberOf(set["stroke-opacity"])))
	add(d)
	d.Draw()
}

var commandForm = check.Pattern(`([MLHV])(-?[0-9.]+) ?(-?[0-9.]*)`)

// path replays the path commands that segment and polyline write.
func (r *raster) path(a rasterx.Adder, d string) {
	x, y := 0.0, 0.0
	for i, m := range commandForm().FindAllStringSubmatch(d, -1) {
		switch m[1] {
		case "H":
			x = numberOf(m[2])
		case "V":
			y = numberOf(m[2])
		default:
			x, y = numberOf(m[2]), numberOf(m[3])
		}

		at := rasterx.ToFixedP(r.px(x), r.py(y))
		switch {
		case m[1] != "M":
			a.Line(at)
		case i > 0:
			a.Stop(false)
			fallthrough
		default:
			a.Start(at)
		}
	}

	a.Stop(false)
}

// write draws text in the built-in font.
func (r *raster) write(set map[string]string, s shape) error {
	size := numberOf(strings.TrimSuffix(set["font-size"], "px")) * r.scale
	face, err := opentype.NewFace(r.fonts[set["font-weight"]], &opentype.FaceOptions{Size: size, DPI: 72})
	if err != nil {
		return fmt.Errorf("size the built-in font: %v", err)
	}

	d := font.Drawer{
		Dst:  r.img,
		Src:  image.NewUniform(hexColour(set["fill"], 1)),
		Face: face,
		Dot:  rasterx.ToFixedP(r.px(s.x), r.py(s.y)),
	}
	text := strings.ReplaceAll(printable(s.text), "▶", "►") // the font lacks ▶
	switch s.anchor {
	case "middle":
		d.Dot.X -= d.MeasureString(text) / 2
	case "end":
		d.Dot.X -= d.MeasureString(text)
	}

	d.DrawString(text)
	return face.Close()
}

// hexColour parses #rrggbb.
func hexColour(text string, opacity float64) color.NRGBA {
	v, _ := strconv.ParseUint(strings.TrimPrefix(text, "#"), 16, 32) // the style uses no other notation
	return color.NRGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), uint8(opacity*255 + .5)}
}
