// The picture of another sample beside the picture of the page. Both share a view: place, zoom, cursor, bands and stretch.

import { el } from './dom.js';
import { CubeImage } from './image.js';
import { Picture } from './picture.js';

export class Side {
  /** @param {any} session  of the page @param {any} cube */
  constructor(session, cube) {
    this.cube = cube;
    this.session = session;
    // Maps replace only the page's own picture.
    this.beside = true;
    this.view = session.view;
    this.page = session.page;
    this.fail = session.fail;
    this.keys = session.keys;
    this.picture = new Picture(this);
    this.image = new CubeImage(this, () => this.#painted());
    this.picture.frame.classList.add('other');
    this.picture.frame.append(el('p', { class: 'whose' }, cube.name));
  }

  pin(region) { this.session.pin(region); }
  point(at) { this.session.point(at, this.picture); }

  #painted() {
    this.picture.frame.setAttribute('aria-busy', String(this.image.busy > 0));
    this.picture.draw();
    this.picture.look();
    this.session.share();
  }

  stop() {
    this.image.stop();
    this.picture.stop();
    this.picture.frame.remove();
  }
}
