// Draws how a robot moved with WebGL: shapes that are fixed to bodies, the bodies' poses by frame, and a camera that turns
// around the motion. What is drawn comes from states; the server renders no picture.

const VERTEX = `#version 300 es
uniform mat4 body, camera;
in vec3 corner;
out vec3 place;
void main() { vec4 world = body * vec4(corner, 1.0); place = world.xyz; gl_Position = camera * world; }`;
const FRAGMENT = `#version 300 es
precision highp float;
uniform vec4 colour;
uniform vec3 light;
uniform bool floor_;
in vec3 place;
out vec4 result;
void main() {
  // The normal of the triangle: edges stay sharp, and shapes need no normals of their own.
  vec3 normal = normalize(cross(dFdx(place), dFdy(place)));
  float shade = 0.45 + 0.55 * abs(dot(normal, light));
  vec3 paint = colour.rgb;
  if (floor_) paint *= mod(floor(place.x * 2.0) + floor(place.y * 2.0), 2.0) < 0.5 ? 1.0 : 0.92;
  result = vec4(paint * shade, colour.a);
}`;

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
export const floats = (text) => new Float32Array(bytes(text));

// Column-major 4x4 matrices, as WebGL takes them.
function times(a, b) {
  const product = new Float32Array(16);
  for (let column = 0; column < 4; column++) for (let row = 0; row < 4; row++) {
    let sum = 0;
    for (let k = 0; k < 4; k++) sum += a[4 * k + row] * b[4 * column + k];
    product[4 * column + row] = sum;
  }
  return product;
}

// A pose is x, y, z and a quaternion w, x, y, z.
function matrix(poses, at) {
  const [x, y, z, w, i, j, k] = poses.subarray(at, at + 7);
  return new Float32Array([
    1 - 2 * (j * j + k * k), 2 * (i * j + w * k), 2 * (i * k - w * j), 0,
    2 * (i * j - w * k), 1 - 2 * (i * i + k * k), 2 * (j * k + w * i), 0,
    2 * (i * k + w * j), 2 * (j * k - w * i), 1 - 2 * (i * i + j * j), 0,
    x, y, z, 1]);
}

const minus = (a, b) => a.map((value, index) => value - b[index]);
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const unit = (a) => a.map((value) => value / (Math.hypot(...a) || 1));

/** Camera that both sides share: it looks at `centre` from `distance`; angles in radians. */
export class Orbit {
  constructor() { Object.assign(this, { azimuth: -1.0, elevation: 0.35, distance: 2, centre: [0, 0, 0] }); }

  /** Places the camera so that all corners of the moving shapes are seen in every frame of these motions. */
  frame(scene, motions) {
    const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
    const moving = scene.shapes.filter((shape) => shape.body > 0);
    for (const { poses, bodies, frames } of motions) for (let t = 0; t < frames; t += Math.max(1, frames >> 4)) {
      for (const { body, reach } of moving) for (let axis = 0; axis < 3; axis++) {
        const value = poses[7 * (t * bodies + body) + axis];
        low[axis] = Math.min(low[axis], value - reach);
        high[axis] = Math.max(high[axis], value + reach);
      }
    }
    if (low[0] === Infinity) return;
    this.centre = low.map((value, axis) => (value + high[axis]) / 2);
    this.distance = Math.max(0.2, 1.35 * Math.hypot(...minus(high, low)));
  }

  matrix(aspect) {
    const { azimuth: a, elevation: e, distance: d, centre } = this;
    const eye = [centre[0] + d * Math.cos(e) * Math.cos(a), centre[1] + d * Math.cos(e) * Math.sin(a), centre[2] + d * Math.sin(e)];
    const back = unit(minus(eye, centre)), right = unit(cross([0, 0, 1], back)), up = cross(back, right);
    const view = new Float32Array([
      right[0], up[0], back[0], 0, right[1], up[1], back[1], 0, right[2], up[2], back[2], 0,
      -dot(right, eye), -dot(up, eye), -dot(back, eye), 1]);
    // A field of view of 40 degrees in the narrower direction.
    const near = d / 100, far = 20 * d, f = 1 / Math.tan(0.35) / Math.max(1, 1 / aspect);
    const lens = new Float32Array([
      f / aspect, 0, 0, 0, 0, f, 0, 0, 0, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0]);
    return times(lens, view);
  }

  turn(dx, dy) {
    this.azimuth -= 0.01 * dx;
    this.elevation = Math.min(1.5, Math.max(-0.2, this.elevation + 0.01 * dy));
  }
}

/** The scene of the service's answer, with typed arrays in place of text. */
export function decoded(scene) {
  return { shapes: scene.shapes.map((shape) => {
    const corners = floats(shape.vertices);
    let reach = 0;
    for (let at = 0; at < corners.length; at += 3) reach = Math.max(reach, Math.hypot(...corners.subarray(at, at + 3)));
    return { ...shape, corners, faces: new Uint32Array(bytes(shape.faces)), reach };
  }) };
}

/** One canvas; throws an Error if the browser has no WebGL 2. */
export class Player {
  constructor(canvas, scene, orbit) {
    const gl = canvas.getContext("webgl2", { antialias: true, preserveDrawingBuffer: true });
    if (!gl) throw new Error("this browser has no WebGL 2");
    Object.assign(this, { canvas, gl, orbit });
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    gl.useProgram(program);
    this.at = Object.fromEntries(["body", "camera", "colour", "light", "floor_"].map((name) =>
      [name, gl.getUniformLocation(program, name)]));
    const corner = gl.getAttribLocation(program, "corner");
    // Opaque shapes first, so that what is behind a transparent one is seen.
    this.parts = [...scene.shapes].sort((a, b) => b.colour[3] - a.colour[3]).map((shape) => {
      const array = gl.createVertexArray();
      gl.bindVertexArray(array);
      gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ARRAY_BUFFER, shape.corners, gl.STATIC_DRAW);
      gl.enableVertexAttribArray(corner);
      gl.vertexAttribPointer(corner, 3, gl.FLOAT, false, 0, 0);
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, shape.faces, gl.STATIC_DRAW);
      return { array, count: shape.faces.length, body: shape.body, colour: shape.colour };
    });
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  }

  /** Draws a frame of a motion: poses of shape (frames, bodies, 7). */
  draw({ poses, bodies, frames }, frame) {
    const { gl, canvas, at } = this, scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    gl.viewport(0, 0, width, height);
    gl.clearColor(0.87, 0.9, 0.93, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.uniformMatrix4fv(at.camera, false, this.orbit.matrix(width / Math.max(1, height)));
    gl.uniform3fv(at.light, unit([0.4, -0.5, 0.8]));
    const row = Math.min(frame, frames - 1) * bodies;
    for (const part of this.parts) {
      gl.uniformMatrix4fv(at.body, false, matrix(poses, 7 * (row + part.body)));
      gl.uniform4fv(at.colour, part.colour);
      gl.uniform1i(at.floor_, part.body === 0 ? 1 : 0);
      gl.bindVertexArray(part.array);
      gl.drawElements(gl.TRIANGLES, part.count, gl.UNSIGNED_INT, 0);
    }
  }
}
