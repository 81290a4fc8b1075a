import { describe, expect, it } from "vitest";
import { runs } from "../fixtures/runs";
import { NOTHING_SELECTED, parseHash, resolveSelection, writeHash, type Selection } from "./selection";

const wish = (more: Partial<Selection>): Selection => ({ ...NOTHING_SELECTED, ...more });

describe("hash", () => {
  it("keeps TensorBoard's own keys and their order", () => {
    const hash = writeHash("#plumber&_smoothing=0.6", wish({ run: "a b/fit", operator: "op1" }));
    expect(hash).toBe("plumber&_smoothing=0.6&p.plumber.run=a%20b%2Ffit&p.plumber.operator=op1");
    expect(parseHash(`#${hash}`)).toEqual(wish({ run: "a b/fit", operator: "op1" }));
  });
  it("replaces what it wrote before", () => {
    expect(writeHash("#plumber&p.plumber.run=old&p.plumber.host=h", wish({ run: "new" }))).toBe("plumber&p.plumber.run=new");
  });
  it("reads what people type", () => {
    expect(parseHash("#plumber&p.plumber.run=50%&p.other.run=x&run=y&p.plumber.host=")).toEqual(wish({ run: "50%" }));
    expect(parseHash("")).toEqual(NOTHING_SELECTED);
  });
});

describe("resolve", () => {
  it("takes what the server preselects", () => {
    expect(resolveSelection(NOTHING_SELECTED, runs)).toEqual(wish({ run: "resnet/fit", host: "worker-b-1", pipeline: "5f0c9a" }));
  });
  it("keeps what exists", () => {
    const kept = wish({ run: "resnet/fit", host: "worker-a-0", pipeline: "77aa01", operator: "op3" });
    expect(resolveSelection(kept, runs)).toEqual(kept);
  });
  it("for another run takes its main pipeline", () => {
    expect(resolveSelection(wish({ run: "baseline" }), runs)).toEqual(wish({ run: "baseline", host: "worker-a-0", pipeline: "c0ffee" }));
  });
  it("for another run takes its slowest host", () => {
    expect(resolveSelection(wish({ run: "resnet/fit" }), { ...runs, run: "baseline", host: null, pipeline: null }).host).toBe("worker-b-1");
  });
  it("forgets what is gone", () => {
    expect(resolveSelection(wish({ run: "deleted", host: "gone", pipeline: "gone" }), runs).run).toBe("resnet/fit");
    expect(resolveSelection(wish({ run: "x" }), { ...runs, runs: [] })).toEqual(NOTHING_SELECTED);
  });
});
